# SPDX-License-Identifier: Apache-2.0
# A database in WAL mode with two writers, locks, a backup, integrity.
sqlite3 a.db 'pragma journal_mode=wal; create table t(x integer primary key, y text); insert into t(y) select hex(randomblob(8)) from (with recursive c(n) as (select 1 union all select n+1 from c where n<20000) select n from c);'
for i in 1 2; do
    for k in $(seq 50); do sqlite3 -cmd '.timeout 20000' a.db "insert into t(y) values ('$i-$k')"; done &
done
wait
sqlite3 a.db 'select count(*) from t; pragma integrity_check;'
sqlite3 a.db '.backup b.db' && sqlite3 b.db 'select count(*) from t'
sqlite3 a.db 'begin exclusive; update t set y = y || 1; commit; vacuum; pragma wal_checkpoint(truncate);'
ls | sort

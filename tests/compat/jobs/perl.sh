# SPDX-License-Identifier: Apache-2.0
# Processes, pipes, signals, locks, sockets, files, temporary folders, modules.
cat >p.pl <<'P'
use strict; use warnings; use Fcntl qw(:flock); use File::Temp qw(tempdir); use IPC::Open3; use POSIX; use Socket; use IO::Socket::INET;
use IO::Socket::UNIX; use Digest::SHA qw(sha256_hex); use Storable; use Time::HiRes qw(usleep alarm); use File::Find; use threads;
$| = 1; my $d = tempdir(CLEANUP => 1); pipe(my $r, my $w); my $pid = fork // die; if (!$pid) { close $r; print $w "child\n"; exit 7 }
close $w; print <$r>; waitpid $pid, 0; print $? >> 8, "\n"; my $o = open3(undef, my $out, undef, "sh", "-c", "echo out; echo err >&2"); print sort <$out>; waitpid $o, 0;
$SIG{ALRM} = sub { print "alarm\n" }; alarm 0.05; select undef, undef, undef, 5; open my $f, ">", "$d/l" or die; print flock($f, LOCK_EX | LOCK_NB) ? "locked\n" : "not\n";
my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die $!; if (!fork) { my $c = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $s->sockport); print $c "tcp\n"; exit } print $s->accept->getline; wait;
my $u = IO::Socket::UNIX->new(Local => "$d/s", Listen => 1) or die $!; if (!fork) { print { IO::Socket::UNIX->new(Peer => "$d/s") } "unix\n"; exit } print $u->accept->getline; wait;
store {a => [1, 2]}, "$d/st"; print retrieve("$d/st")->{a}[1], "\n", sha256_hex("x"), "\n"; print join(",", sort map { threads->create(sub { $_[0] ** 2 }, $_)->join } 1 .. 4), "\n";
symlink "l", "$d/y"; rename "$d/l", "$d/m"; print -l "$d/y" ? "link " : "", -e "$d/y" ? "there" : "dangling", "\n"; mkdir "/usr/x" or print $!{EACCES} || $!{EROFS} ? "refused\n" : "$!\n"; unlink "/usr/none" or print "$!\n";
print -t STDIN ? "tty\n" : "no tty\n"; my @p = POSIX::uname(); print $p[0], "\n"; my $n = 0; find(sub { $n++ }, "/usr/share/perl"); print $n > 10 ? "found\n" : "empty\n"; kill USR1 => fork || do { sleep 9; exit }; wait; print $? & 127, "\n";
P
perl p.pl

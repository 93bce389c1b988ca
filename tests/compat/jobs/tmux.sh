# SPDX-License-Identifier: Apache-2.0
# A terminal of its own over a unix socket: windows, keys, what is on the screen.
export TMUX_TMPDIR=$PWD SHELL=/bin/sh
tmux -f /dev/null new-session -d -x 90 -y 30 -s a 'PS1="$ " sh' && tmux send-keys -t a 'stty size; tty >/dev/null && echo "on a term""inal"' Enter
for _ in $(seq 50); do tmux capture-pane -p -t a | grep -q '^on a terminal' && break; sleep 0.1; done
tmux capture-pane -p -t a | grep -E '^[0-9on ]'; tmux new-window -t a -n w; tmux list-windows -t a -F '#I' | wc -l; tmux kill-server

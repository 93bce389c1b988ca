# SPDX-License-Identifier: Apache-2.0
# A repository from init to a merge, a clone and a bundle.
export HOME=$PWD/home GIT_CONFIG_NOSYSTEM=1
mkdir home work && cd work
git config --global user.name A && git config --global user.email a@example.com && git config --global init.defaultBranch main
git init -q . && seq 100 >f && git add f && git commit -qm one
git checkout -qb side && sed -i s/50/fifty/ f && git commit -qam two
git checkout -q main && sed -i s/^9$/nine/ f && git commit -qam three && git merge -q side -m merged
git log --format=%s && git diff HEAD~1 --stat && git fsck --strict
git bundle create -q ../b main && git clone -q ../b ../c -b main && diff f ../c/f
git gc -q && git count-objects -v | grep -E '^(in-pack|prune)'
git stash list; echo x >>f; git stash -q; git stash pop -q; git status --short; git worktree add -q ../w side; cat ../w/f | md5sum

# tree/00 … tree/39, each with fifty files of 100 KB.
line 0 'find tree -type f | wc -l; find tree -type d | sort | tail -n 3; du -s --apparent-size tree/07/3 | cut -f1'
line 0 'grep -rl "needle 7" tree | sort'
step 1 grep -rq 'not in any file' tree
line 0 'find tree -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum'
line 0 'mkdir out; tar c --sort=name tree | tar x -C out'
step 0 diff -r tree out/tree
step 0 cp -r tree/01 copied_1
step 0 cp -a tree/00 copied_2
step 0 rm -r out
step 1 rm -r out
line 0 'cat tree/0?/* | sort > sorted; sha256sum < sorted; rm sorted'
line 0 'find tree -path "*/1?/*" -name "*[05]" -delete -print | sort | wc -l'
line 0 'for file in tree/20/*; do echo "line at the end" >> $file; done; truncate -s 50000 tree/21/*'
line 0 'for file in tree/22/*; do mv $file $file.moved; done; chmod 600 tree/23/*; rm -r tree/24; mkdir tree/24; echo x > tree/24/x'
line 0 'sed -i s/needle/thread/ tree/25/*; ln tree/26/0 tree/26/hard; cp --sparse=always /dev/null tree/27/empty; truncate -s 1G tree/27/holes'
line 0 'find tree -printf "%y %m %s %p\n" | grep -v "^d" | sort | sha256sum'
step 0 mv tree/30 tree/moved
line 0 'mkdir made; mv tree/31 made/; mv made renamed'
line 0 'find . -type d | sort'

#!/bin/sh
# One EM iteration with Hadoop streaming, over csv files without a header in HDFS. The mapper reads the lines of its
# split from standard input and prints its sums as one line of base64; the reducer adds the lines that it gets.
hadoop jar hadoop-streaming.jar -files model.json,gmm,map.sh,reduce.sh \
    -D mapreduce.job.reduces=1 -input /rows -output /sums -mapper map.sh -reducer reduce.sh
hdfs dfs -cat '/sums/part-*' | base64 -d >all.stats
gmm maximise all.stats --from model.json -o model.json

# map.sh:    ./gmm pass model.json - --format csv --header no --threads 1 -q -o - | base64 -w 0; echo
# reduce.sh: i=0; while read -r line; do i=$((i + 1)); echo "$line" | base64 -d >$i.stats; done
#            ./gmm add $(seq -f %g.stats $i) -q -o - | base64 -w 0; echo
# The order in which the reducer gets the lines is not fixed, so runs agree to rounding only.

#!/bin/sh
# Fits a Gaussian mixture to many files: in each iteration one pass over every file, several at once.
#
#   gmm fit part-0.npy -k 16 --max-iter 0 -o start.json      # or any other model to start from
#   JOBS=8 ./loop.sh start.json model.json part-*.npy
#
# The sums are added in the order in which the files are named, so the result does not depend on JOBS. With GNU parallel,
# hosts that share the file system, and "$sums" on it, replace xargs and its arguments by
#   parallel -0 -N 2 --sshloginfile hosts gmm pass "$model" {1} --device cpu --threads 1 -q -o {2}
set -eu
model=$2
cp "$1" "$model"
shift 2
sums=$(mktemp -d)
trap 'rm -rf "$sums"' EXIT
iteration=0
converged=
while [ -z "$converged" ] && [ "$iteration" -lt "${MAX_ITER:-100}" ]; do
    iteration=$((iteration + 1))
    number=0
    for file in "$@"; do
        number=$((number + 1))
        # Numbers of equal width: the names sort in the order of the files.
        printf '%s\0%s/%08d.stats\0' "$file" "$sums" "$number"
    done | xargs -0 -n 2 -P "${JOBS:-4}" sh -c 'exec gmm pass "$0" "$1" --device cpu --threads 1 -q -o "$2"' "$model"
    gmm add "$sums"/*.stats -q -o "$sums/all"
    gmm maximise "$sums/all" --from "$model" --tol "${TOL:-1e-3}" --json -o "$model" >"$sums/step.json"
    converged=$(grep '"converged": true' "$sums/step.json" || true)
    grep '"mean_log_likelihood"' "$sums/step.json"
done

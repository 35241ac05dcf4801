#!/bin/sh
# Times `gmm adapt` on many utterances, with nothing but the program: benches/adapt.sh GMM FOLDER [UTTERANCES]
# Default: 1000 utterances of 1000 x 39, f64 files (312 MB), K = 1024 diagonal. Means of the CPU and of the GPU are compared;
# without a GPU the second part is an error that says so. "read" and "adapted" are printed with their own times.
set -eu
gmm=$1 folder=$2 count=${3:-1000}
mkdir -p "$folder/rows"
[ -f "$folder/ubm.json" ] || {
    "$gmm" generate -n 100000 -k 64 -d 39 --covariance diag --seed 0 -o "$folder/all.npy"
    "$gmm" fit "$folder/all.npy" -k 1024 --covariance diag --init random-rows --max-iter 2 --device cpu -q -o "$folder/ubm.json"
}
i=0
while [ "$i" -lt "$count" ]; do
    file=$(printf '%s/rows/%05d.npy' "$folder" "$i")
    [ -f "$file" ] || "$gmm" sample "$folder/ubm.json" -n 1000 --seed "$i" -o "$file"
    i=$((i + 1))
done
run() {
    name=$1
    shift
    echo "== $name"
    # Twice: the first call also loads kernels.
    for _ in 1 2; do
        ( time -p "$gmm" adapt "$folder/ubm.json" "$folder"/rows/*.npy --supervectors "$folder/$name.npy" -v "$@" ) 2>&1
    done
}
run cpu-f32 --device cpu --precision f32
run cpu-top30-f32 --device cpu --precision f32 --top 30
run cuda-f32 --device cuda --precision f32
run cuda-f64 --device cuda --precision f64
# The same means: one speaker of the CPU's beside one of the GPU's, if Python has NumPy.
python3 -c "
import numpy as np
a, b = (np.load('$folder/' + name + '.npy', mmap_mode='r') for name in ('cpu-f32', 'cuda-f32'))
print('largest difference of means, CPU and GPU in f32:', float(np.abs(a[::50] - b[::50]).max()))
" || echo "NumPy is not installed: means were not compared"

#!/bin/sh
# Times EM on rows with missing values beside EM on the whole rows, with nothing but the program and awk:
# benches/missing.sh GMM FOLDER. 1e5 x 13, 8 full components, 20 iterations from random rows; prints the milliseconds of each fit
# without reading, the best of five, and the ratio to the whole rows.
set -eu
gmm=$1 folder=$2
mkdir -p "$folder"
[ -f "$folder/whole.csv" ] || "$gmm" generate -n 100000 -k 8 -d 13 --seed 0 -o "$folder/whole.csv"
fit() {
    best=
    for _ in 1 2 3 4 5; do
        ms=$("$gmm" fit "$1" -k 8 --init random-rows --seed 1 --tol 0 --max-iter 20 --missing em --device "${DEVICE:-cpu}" --json |
            sed -n 's/.*"elapsed_s": *\([0-9.e-]*\).*/\1/p' | awk '{ print 1000 * $1 }')
        best=$(echo "$ms ${best:-$ms}" | awk '{ print $1 < $2 ? $1 : $2 }')
    done
    echo "$best"
}
whole=$(fit "$folder/whole.csv")
echo "share of missing values 0: $whole ms"
for share in 0.01 0.1 0.3; do
    holes=$folder/holes-$share.csv
    [ -f "$holes" ] || awk -F, -v OFS=, -v share=$share \
        'BEGIN { srand(1) } NR > 1 { for (i = 1; i <= NF; i++) if (rand() < share) $i = "" } { print }' "$folder/whole.csv" > "$holes"
    ms=$(fit "$holes")
    echo "share of missing values $share: $ms ms, $(echo "$ms $whole" | awk '{ printf "%.2f", $1 / $2 }') times"
done

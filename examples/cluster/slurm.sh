#!/bin/sh
# One EM iteration on a Slurm cluster, for 500 files in a folder that all nodes see. Submit it once per iteration, each
# after the last one's `maximise`.
pass=$(sbatch --parsable --array=0-499 --wrap='gmm pass model.json part-$(printf %03d "$SLURM_ARRAY_TASK_ID").npy --threads 1 -q -o part-$(printf %03d "$SLURM_ARRAY_TASK_ID").stats')
sbatch --dependency="afterok:$pass" --wrap='gmm add part-*.stats -q -o all.stats && gmm maximise all.stats --from model.json -o model.json'

#!/bin/sh
# Requests a second of `gmm serve` beside scikit-learn behind FastAPI and behind MLServer, in turns: benches/serve.sh PYTHON [OUT]
# PYTHON needs: pip install fastapi 'uvicorn[standard]' 'uvloop<0.22' orjson mlserver scikit-learn (the workers of MLServer 1.7 do not
# start with a later uvloop). OUT: benches/record by default.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(realpath -s "$1") out=${2:-$root/benches/record}
folder=$(mktemp -d)
fastapi= mlserver=
trap 'kill $fastapi $mlserver 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
cp "$root/benches/peers/serve_mlserver.py" "$folder"
echo '{"http_port": 8202, "grpc_port": 8203, "metrics_port": 8204, "host": "127.0.0.1", "parallel_workers": 2, "debug": false}' \
    > "$folder/settings.json"
echo '{"name": "load", "implementation": "serve_mlserver.Mixture"}' > "$folder/model-settings.json"
cd "$root"
cargo bench -p gmm-serve --bench load --no-run
# One thread of BLAS for each worker of the other servers: more of them compete for the cores.
one="env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1"
$one "$python" -m uvicorn --workers 2 --no-access-log --log-level warning --port 8201 --app-dir benches/peers serve_sklearn:app &
fastapi=$!
( cd "$folder" && exec $one "$(dirname "$python")/mlserver" start "$folder" > "$folder/log" 2>&1 ) &
mlserver=$!
for port in 8201 8202; do
    i=0
    until "$python" -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null; do
        i=$((i + 1))
        [ "$i" -lt 120 ] || { cat "$folder/log"; exit 1; }
        sleep 1
    done
done
sleep 5
cargo bench -p gmm-serve --bench load -- fastapi=127.0.0.1:8201 mlserver=127.0.0.1:8202 --out "$out"

# load.sh FILE: what dev/test --stress runs beside the tests: a busy loop for each core, and a writer to the disk. Until it is killed.
for ((i = 0; i < $(nproc); i++)); do
    while :; do :; done &
done
while :; do dd if=/dev/zero of="$1" bs=1M count=256 conv=fsync status=none; done

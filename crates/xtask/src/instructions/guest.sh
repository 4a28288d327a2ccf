# Runs in a guest with counted time: builds each data path, asks over one connection, takes the path down.
# usage: bash -c SCRIPT NAME HOSTGAP PATH...    with the modules to load first in MODULES
# Writes lines of three parts: path, what the line holds (server, run or failed), and that.

hostgap=$1
shift
# One word each.
modprobe --all $MODULES

# The text that follows a name in a line of JSON, up to the next quotation mark.
field() {
	sed -n "s/.*\"$1\":\[\{0,1\}\"\([^\"]*\)\".*/\1/p"
}

measure() {
	# There is one processor, so nobody else could do the receiver's work.
	up=$("$hostgap" lab up "$1" --steering sender --json 2>&1)
	netns=$(field client_netns <<<"$up") url=$(field urls <<<"$up")
	if [ -z "$netns" ] || [ -z "$url" ]; then
		echo "$1 failed $(tr '\n' ' ' <<<"$up")"
		return
	fi
	echo "$1 server $(field server <<<"$up")"
	for repetition in 1 2 3; do
		# Warm first: what is loaded, resolved and cached once is no part of a request.
		echo "$1 run $(ip netns exec "$netns" "$hostgap" load "$url" --rate max --connections 1 --threads 1 \
			--warmup 20ms --duration 100ms --json 2>&1 | tr '\n' ' ')"
	done
	"$hostgap" lab down >/dev/null || echo "$1 failed its topology did not come down whole"
}

for path; do
	measure "$path"
done

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* TCP between two pods of one node, past TCP: what one end sends is put into the other end's queue.
 *
 * The connection is made, kept and ended by TCP as ever, and each message can still go its way. So there are two ways
 * for the bytes of one stream, and three things must hold:
 *
 * - One queue. A socket in a map has a queue of its own beside TCP's, and is read from it first. A reader that learns
 *   of new bytes by edges (EPOLLET) and takes a short read for the end would miss what lies in the other. So TCP's
 *   bytes are put into the same queue on arrival (from_wire), and there is only one.
 * - Order. Bytes left to TCP take their time. Until they are in the queue, no later ones go past them: the sender compares
 *   its sequence number with the one up to which the receiver has everything there. Only the receiver's process knows
 *   that one, when it sends something itself: it holds the socket's lock then, so no packet is between TCP and the queue.
 *   A program that sees a packet arrive (from_wire) runs before the packet is put into the queue, and the sender could be
 *   faster. The other way round needs nothing: a byte that goes past TCP is in the queue before the sender's call returns.
 * - A limit. Nothing makes the sender of a short cut wait for the receiver, up to all memory of TCP. So it may be ahead
 *   by AHEAD_MAX bytes; what is more goes by TCP, whose window counts what lies in the queue.
 *
 * A stream's first bytes may be sent before the other end is in the map. They go by TCP, like those of every socket that
 * is no pod's. */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "generation/build.bpf.h"
#include "splice.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct splice_lists splice_lists = {};

#define AF_INET 2
#define AF_INET6 10
#define SOCKETS_MAX 65536
#define MEMBERS_MAX 16384
/* Bytes that a sender may be ahead of its receiver: a few of the largest answers of a service, and no danger to a
 * machine with thousands of connections that are not read. */
#define AHEAD_MAX (1 << 20)
/* The low bits of sk_user_data are flags (include/net/sock.h). */
#define USER_DATA_MASK (~7UL)

/* What is read of the kernel's own structures; where the fields lie is found out when the programs are loaded. */
struct list_head {
	struct list_head *next;
} __attribute__((preserve_access_index));

struct sk_buff_head {
	__u32 qlen;
} __attribute__((preserve_access_index));

struct mutex {
	struct {
		long counter;
	} owner;
} __attribute__((preserve_access_index));

struct sk_psock {
	struct list_head ingress_msg;
	struct sk_buff_head ingress_skb;
	struct mutex work_mutex;
} __attribute__((preserve_access_index));

struct sock {
	void *sk_user_data;
	struct sk_buff_head sk_receive_queue;
} __attribute__((preserve_access_index));

struct tcp_sock {
	__u32 write_seq;
	__u32 rcv_nxt;
} __attribute__((preserve_access_index));

/* The format of these maps (SPLICE_FORMAT), for generation.rs. No program reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} splice_format SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, SOCKETS_MAX);
	__type(key, struct end);
	__type(value, __u64);
} splice_sockets SEC(".maps");

/* By the lower end. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SOCKETS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct end);
	__type(value, struct connection);
} splice_streams SEC(".maps");

/* The pods of this node: an address and the cookie of the network namespace that has it. A socket with a pod's address
 * in another namespace is another's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MEMBERS_MAX);
	__type(key, struct address);
	__type(value, __u64);
} splice_members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SPLICE_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} splice_counters SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&splice_counters, &what);

	if (counter)
		*counter += 1;
}

/* The contexts of the three kinds of programs have the same fields of a socket under the same names. The kernel gives
 * the remote port in network order in the upper half of a word, the local one in host order.
 *
 * All are read before the family is asked for: of one read in each branch the compiler makes one behind both, at a
 * computed offset, which the verifier refuses. In an IPv4 socket the fields of IPv6 are there too, and mean nothing. */
#define READ(context, field) (*(const volatile __typeof__((context)->field) *)&(context)->field)
#define END(context) ({                                                                                   \
	struct end end_ = {                                                                               \
		.local = { { READ(context, local_ip6[0]), READ(context, local_ip6[1]),                    \
			     READ(context, local_ip6[2]), READ(context, local_ip6[3]) } },                \
		.remote = { { READ(context, remote_ip6[0]), READ(context, remote_ip6[1]),                 \
			      READ(context, remote_ip6[2]), READ(context, remote_ip6[3]) } },             \
		.local_port = READ(context, local_port),                                                  \
		.remote_port = bpf_ntohl(READ(context, remote_port)),                                     \
	};                                                                                                \
	__be32 local4_ = READ(context, local_ip4), remote4_ = READ(context, remote_ip4);                  \
	if (READ(context, family) != AF_INET6) {                                                          \
		end_.local = (struct address){ { 0, 0, bpf_htonl(0xffff), local4_ } };                    \
		end_.remote = (struct address){ { 0, 0, bpf_htonl(0xffff), remote4_ } };                  \
	}                                                                                                 \
	end_;                                                                                             \
})

static __always_inline struct end other(const struct end *end)
{
	return (struct end){ .local = end->remote, .remote = end->local,
			     .local_port = end->remote_port, .remote_port = end->local_port };
}

/* 0 if this is the lower end of its connection, else 1. Two pods differ in the last word if their prefix is as long as
 * prefixes of pods are; the others are compared for who has longer ones. */
static __always_inline __u32 side(const struct end *end)
{
	for (int word = 3; word >= 0; word--) {
		if (end->local.words[word] != end->remote.words[word])
			return end->local.words[word] > end->remote.words[word];
	}
	return end->local_port > end->remote_port;
}

static __always_inline struct connection *find(const struct end *end, const struct end *far)
{
	return bpf_map_lookup_elem(&splice_streams, side(end) ? far : end);
}

static __always_inline struct half *half_of(struct connection *connection, __u32 side)
{
	return side ? &connection->halves[1] : &connection->halves[0];
}

/* The address of the queue and of what belongs to it; 0: the socket is in no map. */
static __always_inline __u64 psock_of(struct tcp_sock *tcp)
{
	return (__u64)((struct sock *)tcp)->sk_user_data & USER_DATA_MASK;
}

/* Whether all that TCP has received is in the queue. Who asks holds the socket's lock, so no packet is between the two but
 * those that the kernel has put off (sk_psock_backlog): on a list, or taken off it by a worker that holds a lock meanwhile.
 * So the list comes first. Of a kernel with other locks (PREEMPT_RT) it is not known. */
static __always_inline bool is_settled(struct tcp_sock *tcp)
{
	__u64 psock = psock_of(tcp), list, lock;
	__u32 put_off = 0;
	long owner = 0;

	if (!psock || ((struct sock *)tcp)->sk_receive_queue.qlen)
		return false;
	if (!bpf_core_field_exists(struct sk_psock, work_mutex) || !bpf_core_field_exists(struct mutex, owner))
		return false;
	list = psock + bpf_core_field_offset(struct sk_psock, ingress_skb) +
	       bpf_core_field_offset(struct sk_buff_head, qlen);
	if (bpf_probe_read_kernel(&put_off, sizeof(put_off), (void *)list) || put_off)
		return false;
	lock = psock + bpf_core_field_offset(struct sk_psock, work_mutex) + bpf_core_field_offset(struct mutex, owner);
	return !bpf_probe_read_kernel(&owner, sizeof(owner), (void *)lock) && !owner;
}

/* Whether the socket's process has read all that is in its queue. */
static __always_inline bool is_read(struct tcp_sock *tcp)
{
	__u64 data = psock_of(tcp);
	__u64 queue = data + bpf_core_field_offset(struct sk_psock, ingress_msg);
	__u64 first = 0;

	/* Without the queue there is nothing to report: TCP's own limits hold. */
	if (!data || bpf_probe_read_kernel(&first, sizeof(first), (void *)queue))
		return false;
	return first == queue;
}

/* Whether a socket is that of a pod of this node, and the other end's address is another's. */
static __always_inline bool is_member(struct bpf_sock_ops *ops, const struct end *end)
{
	__u64 *cookie = bpf_map_lookup_elem(&splice_members, &end->local);

	return cookie && *cookie == bpf_get_netns_cookie(ops) && bpf_map_lookup_elem(&splice_members, &end->remote);
}

/* The calling end is the first to be established, and the one that knows that what was there before is over. */
static __always_inline bool open_stream(const struct end *end, const struct end *far, struct connection *fresh)
{
	return !bpf_map_update_elem(&splice_streams, side(end) ? far : end, fresh, BPF_ANY);
}

static __always_inline void join(struct bpf_sock_ops *ops, bool calling)
{
	struct end end = END(ops), far = other(&end);
	struct connection fresh = {}, *connection;
	struct half *incoming;

	if (!is_member(ops, &end))
		return;
	/* Bytes that came with the first packet (TCP Fast Open) lie in TCP's own queue already. */
	if (ops->bytes_received)
		return;
	if (calling && !open_stream(&end, &far, &fresh)) {
		count(SPLICE_UNJOINED);
		return;
	}
	connection = find(&end, &far);
	/* The caller's socket is none of this group: there is no socket to splice with. */
	if (!connection)
		return;
	incoming = half_of(connection, !side(&end));
	incoming->arrived = ops->rcv_nxt;
	if (bpf_sock_hash_update(ops, &splice_sockets, &end, BPF_ANY)) {
		count(SPLICE_UNJOINED);
		return;
	}
	/* From here on it can be notified of its end. */
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	half_of(connection, side(&end))->joined = 1;
	count(SPLICE_JOINED);
}

static __always_inline void leave(struct bpf_sock_ops *ops)
{
	struct end end = END(ops), far = other(&end);

	bpf_map_delete_elem(&splice_streams, side(&end) ? &far : &end);
}

SEC("sockops")
int splice_ends(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		join(ops, true);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		join(ops, false);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == BPF_TCP_CLOSE)
			leave(ops);
		break;
	}
	/* No opinion on anything. */
	return 1;
}

/* Why a message is left to TCP, or SPLICE_MESSAGES if it can go past it. */
static __always_inline __u32 way(const struct half *half, const struct half *theirs, struct tcp_sock *tcp, __u32 size)
{
	if (!theirs->joined)
		return SPLICE_ALONE;
	if (tcp->write_seq != half->arrived)
		return SPLICE_IN_FLIGHT;
	if (half->spliced - half->read + size > AHEAD_MAX)
		return SPLICE_FULL;
	return SPLICE_MESSAGES;
}

SEC("sk_msg")
int splice_message(struct sk_msg_md *msg)
{
	struct end end = END(msg), far = other(&end);
	struct connection *connection = find(&end, &far);
	struct half *half, *theirs;
	struct tcp_sock *tcp;
	__u32 verdict;

	/* The other end has closed: TCP answers for that. */
	if (!connection || !msg->sk)
		return SK_PASS;
	tcp = bpf_skc_to_tcp_sock(msg->sk);
	/* It is TCP; for the verifier. */
	if (!tcp)
		return SK_PASS;
	half = half_of(connection, side(&end));
	theirs = half_of(connection, !side(&end));
	if (is_read(tcp))
		theirs->read = theirs->spliced;
	if (is_settled(tcp))
		theirs->arrived = tcp->rcv_nxt;
	verdict = way(half, theirs, tcp, msg->size);
	if (verdict == SPLICE_MESSAGES) {
		if (bpf_msg_redirect_hash(msg, &splice_sockets, &far, BPF_F_INGRESS) == SK_PASS)
			half->spliced += msg->size;
		else
			verdict = SPLICE_ALONE;
	}
	count(verdict);
	/* By the way that was set above, if one was. */
	return SK_PASS;
}

/* TCP's bytes go into the queue in which the others are. */
SEC("sk_skb")
int splice_from_wire(struct __sk_buff *skb)
{
	struct end end = END(skb), far = other(&end);
	struct connection *connection = find(&end, &far);
	struct tcp_sock *tcp = NULL;
	struct half *incoming;

	if (skb->sk)
		tcp = bpf_skc_to_tcp_sock(skb->sk);
	if (connection && tcp) {
		incoming = half_of(connection, !side(&end));
		if (is_read(tcp))
			incoming->read = incoming->spliced;
	}
	return SK_PASS;
}

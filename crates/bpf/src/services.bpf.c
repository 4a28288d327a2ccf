// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The virtual addresses of Services, exchanged in the socket call that names them: connect(2) and sendmsg(2) go to a backend,
 * and recvmsg(2) and getpeername(2) show the Service. No packet has a Service's address, so nothing on its way must
 * translate it. That is for data paths that leave out netfilter of the node, where kube-proxy's rules are.
 *
 * A socket is that of the control group in which it was opened, so the programs are attached to one that has all pods.
 *
 * Tables are read while they are written. A Service's entry and its slots may be exchanged between two looks, and the
 * kernel gives the memory of what is deleted to the next entry at once, though a program may still read it. Three things
 * make that harmless: a slot is found by its Service and a generation, so that two that do not belong together find
 * nothing, and another look at the Service begins anew; a slot is read twice, and counts if both say the same; and what is
 * remembered of before counts only if it is in a slot now.
 *
 * Datagrams of one socket to one Service go to one backend, as connection tracking has it: what spans several (QUIC) would
 * break else. What a socket receives from a backend shows the Service, also where the same socket has called that backend
 * by its own address.
 *
 * Needs Linux 6.1 for bpf_set_retval in these programs (kernel/bpf/cgroup.c, cgroup_common_func_proto), by which a refused
 * call says ECONNREFUSED and not EPERM. All else is older: connect 4.17, sendmsg 4.18, recvmsg 5.2, getpeername 5.8,
 * bpf_get_netns_cookie 5.7, bpf_loop 5.17. */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "generation/build.bpf.h"
#include "services.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct service_lists service_lists = {};

/* How often a Service is looked up whose slots have just gone. Each time a whole change of it must fall between two
 * neighbouring instructions. */
#define LOOKS_MAX 4
#define NS_PER_S 1000000000ULL

/* What becomes of a call. The kernel goes on with it unless a program returns 0. */
enum verdict {
	REFUSED,
	LEFT,      /* as it is: it is none of a Service */
	LED,       /* to a backend */
};

/* The format of these maps (SERVICES_FORMAT), for generation.rs. No program reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} service_format SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct destination);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SERVICE_SLOTS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct slot);
	__type(value, struct destination);
} service_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SERVICE_FLOWS_MAX);
	__type(key, struct choice_key);
	__type(value, struct choice);
} service_choices SEC(".maps");

/* The choices of sockets have a map of their own. A socket that is closed leaves its choice behind, and some programs open one
 * for each question: in one map with those of clients, they would push out what is to last for hours. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SERVICE_SOCKETS_MAX);
	__type(key, struct choice_key);
	__type(value, struct choice);
} service_socket_choices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SERVICE_FLOWS_MAX);
	__type(key, struct flow);
	__type(value, struct destination);
} service_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVICE_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} service_counts SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&service_counts, &what);

	if (counter)
		*counter += 1;
}

static __always_inline bool is_same(const struct destination *one, const struct destination *two)
{
	for (int word = 0; word < 4; word++) {
		if (one->address.words[word] != two->address.words[word])
			return false;
	}
	return one->port == two->port && one->protocol == two->protocol;
}

/* Reads the backend in a slot; false: there is none, or it is being exchanged. */
static __always_inline bool read_slot(const struct slot *key, struct destination *backend)
{
	struct destination *found = bpf_map_lookup_elem(&service_slots, key);
	struct destination first;

	if (!found)
		return false;
	first = *found;
	found = bpf_map_lookup_elem(&service_slots, key);
	if (!found)
		return false;
	*backend = *found;
	return is_same(&first, backend);
}

/* A backend that is looked for in all slots of a Service. */
struct search {
	struct slot key;
	struct destination backend;
	bool is_found;
};

static long look_into(__u32 slot, struct search *search)
{
	struct destination found;

	search->key.slot = slot;
	search->is_found = read_slot(&search->key, &found) && is_same(&found, &search->backend);
	return search->is_found;
}

static __always_inline struct choice *choice_of(const struct choice_key *choice)
{
	if (choice->kind == CHOICE_OF_NETNS)
		return bpf_map_lookup_elem(&service_choices, choice);
	return bpf_map_lookup_elem(&service_socket_choices, choice);
}

/* The backend of before, and its slot, if it is still one of the Service's. */
static __always_inline bool find_kept(const struct choice_key *choice, const struct service *service, struct slot *key,
				      struct destination *backend)
{
	struct choice *found = choice_of(choice), kept;
	struct search search;

	if (!found)
		return false;
	kept = *found;
	if (kept.until_ns && kept.until_ns < bpf_ktime_get_ns())
		return false;
	key->slot = kept.slot;
	if (kept.slot < service->backends && read_slot(key, backend) && is_same(backend, &kept.backend))
		return true;
	/* The Service has changed since, and the backend may have another slot. */
	search = (struct search){ .key = *key, .backend = kept.backend };
	bpf_loop(service->backends, look_into, &search, 0);
	key->slot = search.key.slot;
	*backend = search.backend;
	return search.is_found;
}

static __always_inline void keep(const struct choice_key *choice, const struct service *service, __u32 slot,
				 const struct destination *backend)
{
	struct choice *known = choice_of(choice);
	struct choice chosen = { .backend = *backend, .slot = slot };

	if (choice->kind == CHOICE_OF_NETNS)
		chosen.until_ns = bpf_ktime_get_ns() + service->affinity_s * NS_PER_S;
	/* To write costs more than to look: a client that calls all the time prolongs its choice once a second. */
	if (known && known->slot == slot && is_same(&known->backend, backend) &&
	    chosen.until_ns - known->until_ns < NS_PER_S)
		return;
	/* Where it cannot be remembered, the next call is led anywhere. */
	if (choice->kind == CHOICE_OF_NETNS)
		bpf_map_update_elem(&service_choices, choice, &chosen, BPF_ANY);
	else
		bpf_map_update_elem(&service_socket_choices, choice, &chosen, BPF_ANY);
}

/* One attempt to find a backend, any if `anew`; false: the slots of what was found are gone. */
static __always_inline bool choose(const struct choice_key *choice, const struct service *service, bool anew,
				   struct destination *backend)
{
	struct slot key = { .service = choice->service, .generation = service->generation };

	if (choice->kind && !anew && find_kept(choice, service, &key, backend)) {
		count(SERVICE_KEPT);
	} else {
		key.slot = bpf_get_prandom_u32() % service->backends;
		if (!read_slot(&key, backend))
			return false;
	}
	if (choice->kind)
		keep(choice, service, key.slot, backend);
	return true;
}

/* Remembers what a socket has called, to show it. */
static __always_inline void note(struct bpf_sock_addr *call, const struct destination *called,
				 const struct destination *backend)
{
	struct flow flow = { .socket = bpf_get_socket_cookie(call), .backend = *backend };
	struct destination *known = bpf_map_lookup_elem(&service_flows, &flow);

	/* Where it cannot be remembered, the socket shows the backend. */
	if (!known || !is_same(known, called))
		bpf_map_update_elem(&service_flows, &flow, called, BPF_ANY);
}

static __always_inline enum verdict refuse(__u32 why)
{
	count(why);
	bpf_set_retval(-ECONNREFUSED);
	return REFUSED;
}

/* Finds the backend for a call, if it is one of a Service. */
static __always_inline enum verdict lead(struct bpf_sock_addr *call, bool is_connected,
					 const struct destination *called, struct destination *backend)
{
	struct choice_key choice = { .service = *called };
	struct service *found, service;
	bool anew = false;

	for (int looks = 0; looks < LOOKS_MAX; looks++) {
		found = bpf_map_lookup_elem(&services, called);
		if (!found)
			return LEFT;
		service = *found;
		if (!service.backends)
			return refuse(SERVICE_REFUSED);
		if (service.affinity_s) {
			choice.kind = CHOICE_OF_NETNS;
			choice.whose = bpf_get_netns_cookie(call);
		} else if (called->protocol == IPPROTO_UDP) {
			/* A connected socket may name the address once more in sendto(2): that datagram goes where the others do. */
			choice.kind = CHOICE_OF_SOCKET;
			choice.whose = bpf_get_socket_cookie(call);
			anew = is_connected;
		}
		if (choose(&choice, &service, anew, backend)) {
			count(SERVICE_LED);
			note(call, called, backend);
			return LED;
		}
	}
	return refuse(SERVICE_LOST);
}

/* What a socket had called that was led to an address; none if it was not. */
static __always_inline struct destination *called_by(struct bpf_sock_addr *call, const struct destination *backend)
{
	struct flow flow = { .socket = bpf_get_socket_cookie(call), .backend = *backend };

	return bpf_map_lookup_elem(&service_flows, &flow);
}

static __always_inline struct destination address4(const struct bpf_sock_addr *call)
{
	return (struct destination){ .address = { { 0, 0, bpf_htonl(0xffff), call->user_ip4 } },
				     .port = call->user_port, .protocol = call->protocol };
}

static __always_inline struct destination address6(const struct bpf_sock_addr *call)
{
	return (struct destination){ .address = { { call->user_ip6[0], call->user_ip6[1], call->user_ip6[2],
						    call->user_ip6[3] } },
				     .port = call->user_port, .protocol = call->protocol };
}

static __always_inline void set_address4(struct bpf_sock_addr *call, const struct destination *destination)
{
	call->user_ip4 = destination->address.words[3];
	call->user_port = destination->port;
}

static __always_inline void set_address6(struct bpf_sock_addr *call, const struct destination *destination)
{
	call->user_ip6[0] = destination->address.words[0];
	call->user_ip6[1] = destination->address.words[1];
	call->user_ip6[2] = destination->address.words[2];
	call->user_ip6[3] = destination->address.words[3];
	call->user_port = destination->port;
}

static __always_inline int lead4(struct bpf_sock_addr *call, bool is_connected)
{
	struct destination called = address4(call), backend;
	enum verdict verdict = lead(call, is_connected, &called, &backend);

	if (verdict == LED)
		set_address4(call, &backend);
	return verdict != REFUSED;
}

static __always_inline int lead6(struct bpf_sock_addr *call, bool is_connected)
{
	struct destination called = address6(call), backend;
	enum verdict verdict = lead(call, is_connected, &called, &backend);

	if (verdict == LED)
		set_address6(call, &backend);
	return verdict != REFUSED;
}

static __always_inline int show4(struct bpf_sock_addr *call)
{
	struct destination backend = address4(call);
	struct destination *called = called_by(call, &backend);

	if (called)
		set_address4(call, called);
	/* The kernel takes no other answer here. */
	return 1;
}

static __always_inline int show6(struct bpf_sock_addr *call)
{
	struct destination backend = address6(call);
	struct destination *called = called_by(call, &backend);

	if (called)
		set_address6(call, called);
	/* The kernel takes no other answer here. */
	return 1;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *call)
{
	return lead4(call, true);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *call)
{
	return lead6(call, true);
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *call)
{
	return lead4(call, false);
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *call)
{
	return lead6(call, false);
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *call)
{
	return show4(call);
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *call)
{
	return show6(call);
}

SEC("cgroup/getpeername4")
int peername4(struct bpf_sock_addr *call)
{
	return show4(call);
}

SEC("cgroup/getpeername6")
int peername6(struct bpf_sock_addr *call)
{
	return show6(call);
}

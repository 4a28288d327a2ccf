// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a node's programs know and count. */
#ifndef HOSTGAP_MAPS_BPF_H
#define HOSTGAP_MAPS_BPF_H

#define PREFIXES_MAX 16384
#define TUNNELS_MAX 65536
#define ROUTES_MAX 65536
#define UPLINKS_MAX 64

const volatile struct config config = {};
const volatile struct lists lists = {};

/* The format of these maps (FORMAT), for generation.rs. No program reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} format SEC(".maps");

/* Pods of this node by address. One map a family: a key of 4 bytes is found faster than one of 16. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENDPOINTS_MAX);
	__type(key, __be32);
	__type(value, struct endpoint);
} endpoints4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENDPOINTS_MAX);
	__type(key, struct in6_addr);
	__type(value, struct endpoint);
} endpoints6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct slot4);
} slots4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct slot6);
} slots6 SEC(".maps");

/* The same pods by their link, for packets that carry no address of theirs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENDPOINTS_MAX);
	__type(key, __u32);
	__type(value, struct endpoint);
} links SEC(".maps");

/* The prefixes of pods: of this node, and of the cluster. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, PREFIXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, enum home);
} prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RECENT);
	__type(key, __u32);
	__type(value, struct home4);
} homes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RECENT);
	__type(key, __u32);
	__type(value, struct home6);
} homes6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, TUNNELS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct tunnel);
} tunnels SEC(".maps");

/* The other nodes' ends of the tunnel, each with the number of prefixes that are reached through it. IPv4 stands as
 * IPv4-mapped IPv6. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TUNNELS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct in6_addr);
	__type(value, __u32);
} peers SEC(".maps");

/* Links beside the wire by which routes may lead to other nodes' pods, by ifindex: devices that wrap what they send
 * themselves. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UPLINKS_MAX);
	__type(key, __u32);
	__type(value, struct uplink);
} uplinks SEC(".maps");

/* Routes to pods of other nodes. The longest unused give way to new ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ROUTES_MAX);
	__type(key, struct way4);
	__type(value, struct route);
} routes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ROUTES_MAX);
	__type(key, struct way6);
	__type(value, struct route);
} routes6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RECENT);
	__type(key, __u32);
	__type(value, struct recent4);
} recent4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RECENT);
	__type(key, __u32);
	__type(value, struct recent6);
} recent6 SEC(".maps");

#endif

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Where an address is at home. The trie says it, and costs as much as the rest of a program: it is asked only where
 * nothing faster decides, and its answer is kept as long as a route. */
#ifndef HOSTGAP_HOME_BPF_H
#define HOSTGAP_HOME_BPF_H

static __always_inline enum home look_up_home(const struct prefix *address)
{
	const enum home *home = bpf_map_lookup_elem(&prefixes, address);

	return home ? *home : HOME_OUTSIDE;
}

static __always_inline enum home home_of4(__be32 address)
{
	const struct prefix prefix = { .bits = 128, .address = { 0, 0, bpf_htonl(0xffff), address } };
	__u32 at = place(0, address);
	struct home4 *known = bpf_map_lookup_elem(&homes4, &at);

	/* There is a place for each; for the verifier. */
	if (!known)
		return HOME_OUTSIDE;
	if (known->address != address || !is_fresh(known->expires)) {
		known->home = look_up_home(&prefix);
		known->address = address;
		known->expires = bpf_jiffies64() + config.route_ticks;
	}
	return known->home;
}

static __always_inline enum home home_of6(const struct in6_addr *address)
{
	const __be32 *words = address->s6_addr32;
	const struct prefix prefix = { .bits = 128, .address = { words[0], words[1], words[2], words[3] } };
	__u32 at = place(words[1], words[3]);
	struct home6 *known = bpf_map_lookup_elem(&homes6, &at);

	if (!known)
		return HOME_OUTSIDE;
	if (!same_words(known->address, words, 4) || !is_fresh(known->expires)) {
		known->home = look_up_home(&prefix);
		__builtin_memcpy(known->address, words, sizeof(known->address));
		known->expires = bpf_jiffies64() + config.route_ticks;
	}
	return known->home;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Of which build programs are. It is in their read-only data and so goes with them, whoever loads, replaces or pins them. */
#ifndef HOSTGAP_BUILD_BPF_H
#define HOSTGAP_BUILD_BPF_H

/* The loader writes it (generation/build.rs). No program reads it. Programs of before there was one lack it. */
const volatile __u64 build = 0;

#endif

//! The table against stacks that a real kernel gave.

use std::collections::BTreeMap;

use super::*;

/// Each line a part and a stack.
const STACKS: &str = include_str!("stacks.txt");

#[test]
fn stacks_of_a_real_kernel_belong_where_they_should() {
    let mut seen: BTreeMap<PathPart, u32> = BTreeMap::new();
    for line in STACKS.lines().filter(|line| !line.starts_with('#')) {
        let (expected, stack) = line.split_once(' ').unwrap();
        let part = PathPart::of(stack);
        assert_eq!(format!("{part:?}"), expected, "{stack}");
        *seen.entry(part).or_insert(0) += 1;
    }
    assert!(PathPart::ALL.iter().all(|part| seen.contains_key(part)), "each part is there: {seen:?}");
}

#[track_caller]
fn check(stack: &str, expected: PathPart) {
    assert_eq!(PathPart::of(stack), expected, "{stack}");
}

#[test]
fn the_innermost_function_of_a_part_decides() {
    check("server;do_syscall_64;__x64_sys_sendto;tcp_sendmsg;ip_output;br_forward", PathPart::Bridge);
    // What serves all parts belongs to the caller.
    check("server;ip_output;br_forward;_raw_spin_lock;__pv_queued_spin_lock_slowpath", PathPart::Bridge);
    check("server;ip_output;br_forward;no_such_function", PathPart::Bridge);
    check("server;no_such_function", PathPart::Other);
    check("server", PathPart::Other);
    check("", PathPart::Other);
}

#[test]
fn the_longest_name_that_fits_decides() {
    check("client;ip_route_input_slow", PathPart::Routing);
    check("client;ip_rcv", PathPart::Ip);
    check("client;ip_tunnel_xmit", PathPart::Tunnel);
    check("client;tcp_gro_receive", PathPart::Softirq);
    check("client;tcp_gso_segment", PathPart::Device);
    check("client;fib_table_lookup", PathPart::Routing);
    check("client;fib_table_lookup_x", PathPart::Routing);
    // A name without a star is that function alone.
    check("client;schedule;do_idle", PathPart::Scheduler);
    check("client;do_idle_x", PathPart::Other);
}

#[test]
fn others_are_foreign_but_for_packets_that_interrupt_them() {
    check("other:rustc;[user]", PathPart::Foreign);
    check("other:rustc;do_syscall_64;vfs_read", PathPart::Foreign);
    check(
        "other:rustc;asm_sysvec_call_function_single;handle_softirqs;net_rx_action;ip_rcv;nf_hook_slow",
        PathPart::Netfilter,
    );
    check("ksoftirqd;run_ksoftirqd;handle_softirqs;net_rx_action;ip_rcv", PathPart::Ip);
    check("swapper;do_idle", PathPart::Scheduler);
}

#[test]
fn no_name_stands_in_two_parts() {
    let mut names: Vec<&str> = names().map(|(name, _)| name).collect();
    let count = names.len();
    assert!(count > 500, "{count} names");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let bare = names.iter().filter(|name| name.strip_suffix('*').is_some_and(|bare| names.contains(&bare)));
    assert_eq!(bare.collect::<Vec<_>>(), [&""; 0], "a name and the same with a star");
    assert!(names.iter().all(|name| name.find('*').is_none_or(|star| star == name.len() - 1)));
}

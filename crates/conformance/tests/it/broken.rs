//! Each case can fail: a plugin that works is broken in one way, and the cases that are about it say so.

use std::collections::BTreeSet;

use cni::Version;
use conformance::{Outcome, all, find};

use crate::debian::THEIRS;
use crate::scene::{debians, failed, found, wrapped};

/// How Debian's ptp, `$REAL`, is broken, and the cases that fail of it.
const BROKEN: &[(&str, &[&str])] = &[
    // It does nothing, and says that it worked.
    (
        "exit 0",
        &[
            "version-alone",
            "version-list",
            "version-unknown",
            "env-command",
            "env-netns-gone",
            "result-only",
            "input-no-json",
        ],
    ),
    ("echo noise; exec $REAL", &["result-only", "check-silent", "version-alone"]),
    // What succeeds and what fails cannot be distinguished.
    (
        "$REAL; exit 0",
        &[
            "env-containerid-missing",
            "env-ifname-missing",
            "env-netns-missing",
            "check-no-result",
            "check-too-old",
        ],
    ),
    ("CNI_CONTAINERID=fixed exec $REAL", &["env-containerid-bad", "env-containerid-missing"]),
    ("CNI_IFNAME=fixed exec $REAL", &["add-interface", "env-ifname-bad", "env-ifname-missing"]),
    ("[ \"$CNI_ARGS\" ] && exit 1; exec $REAL", &["env-args-kubelet"]),
    (
        "in=$(cat); case $in in *unknown-key*) exit 1;; esac; echo \"$in\" | sed 's/\"name\":\\(\"[^\"]*\"\\|null\\)/\"name\":\"fixed\"/' | $REAL",
        &["input-name-bad", "input-name-missing", "input-reserved-keys"],
    ),
    // Results that are not what was made. No random address of a link begins with 00.
    (
        "$REAL | sed 's/\"mac\": \"../\"mac\": \"00/; s/\"dst\": \".*\"/\"dst\": \"10.7.0.0\\/16\"/'",
        &["kernel-mac", "kernel-routes"],
    ),
    (
        "$REAL | sed 's/\"address\": \".*\"/\"address\": \"10.244.1.99\\/24\"/'",
        &["add-distinct", "kernel-addresses", "parallel-add"],
    ),
    (
        "$REAL | sed 's/\"sandbox\": \".*\"/\"sandbox\": \"\\/x\"/; s/\"dst\": \".*\"/\"dst\": \"all\"/'",
        &["result-sandbox", "result-ips", "result-routes"],
    ),
    (
        "$REAL | sed 's/\"cniVersion\": \".*\"/\"cniVersion\": \"0.4.0\"/; s/\"version\": \"4\"/\"version\": \"6\"/'",
        &["result-version", "result-family"],
    ),
    // ADD: it takes what is there, leaves something, does without its plugin for addresses.
    (
        "[ $CNI_COMMAND = ADD ] && nsenter --net=$CNI_NETNS ip link del $CNI_IFNAME 2>/dev/null; exec $REAL",
        &["add-name-taken"],
    ),
    (
        "[ $CNI_COMMAND = ADD ] && ip link add left$(cut -c1-6 /proc/sys/kernel/random/uuid) type bridge; exec $REAL",
        &["del-node", "result-node-interfaces", "killed-add"],
    ),
    ("CNI_PATH=/usr/lib/cni exec $REAL", &["add-delegate-missing"]),
    (
        "[ $CNI_COMMAND$CNI_IFNAME = ADDnet1 ] && nsenter --net=$CNI_NETNS ip link del eth0; exec $REAL",
        &["add-two-interfaces"],
    ),
    // CHECK: it sees nothing, or more than there is.
    (
        "[ $CNI_COMMAND = CHECK ] && exit 0; exec $REAL",
        &[
            "check-interface-gone",
            "check-address-gone",
            "check-route-gone",
            "check-no-result",
            "check-reservation-gone",
            "check-too-old",
        ],
    ),
    (
        "[ $CNI_COMMAND = CHECK ] && [ $(nsenter --net=$CNI_NETNS ip route | wc -l) -gt 3 ] && exit 1; exec $REAL",
        &["check-other-route"],
    ),
    (
        "[ $CNI_COMMAND = CHECK ] && ! [ \"$(nsenter --net=$CNI_NETNS ip route show default)\" ] && exit 1; exec $REAL",
        &["check-other-route"],
    ),
    ("[ $CNI_COMMAND = CHECK ] && exit 1; exec $REAL", &["check-after-add"]),
    // DEL: it does nothing, wants what is gone, takes too much.
    (
        "[ $CNI_COMMAND = DEL ] && exit 0; exec $REAL",
        &[
            "del-interface",
            "del-node",
            "del-no-result",
            "del-releases",
            "del-releases-netns-gone",
            "add-failed-then-del",
        ],
    ),
    (
        "[ $CNI_COMMAND = DEL ] && ! [ -e \"$CNI_NETNS\" ] && exit 1; exec $REAL",
        &["del-netns-gone", "del-netns-unset"],
    ),
    (
        "[ $CNI_COMMAND = DEL ] && ! nsenter --net=$CNI_NETNS ip link show $CNI_IFNAME >/dev/null 2>&1 && exit 1; exec $REAL",
        &["del-twice", "del-never-added", "del-interface-gone"],
    ),
    (
        "[ $CNI_COMMAND = DEL ] && for one in /run/netns/?; do nsenter --net=$one ip link del eth0 2>/dev/null; done; exec $REAL",
        &["del-others"],
    ),
];

#[test]
fn each_break_is_seen_by_the_cases_that_are_about_it() {
    if debians("ptp").is_none() {
        return;
    }
    for (script, seen_by) in BROKEN {
        let dir = tempfile::tempdir().unwrap();
        let cases: Vec<_> = seen_by.iter().flat_map(|id| find(id)).collect();
        let found = found(&wrapped(dir.path(), script), &cases);
        let outcomes: Vec<_> = found.reports.iter().map(|report| (report.case.id, &report.outcome)).collect();
        assert_eq!(failed(&found), seen_by.iter().copied().collect(), "{script}: {outcomes:#?}");
    }
}

/// One that a cloud translates to the container's, say: no interface has it, and several containers may share it.
#[test]
fn an_address_that_is_external_to_the_container_is_not_missed() {
    if debians("ptp").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = r#"$REAL | sed 's/"ips": \[/&{"address":"203.0.113.9\/32"},/'"#;
    let ids = ["kernel-addresses", "result-ips", "add-distinct", "del-others", "parallel-add"];
    let cases: Vec<_> = ids.iter().flat_map(|id| find(id)).collect();
    let found = found(&wrapped(dir.path(), script), &cases);
    assert!(found.reports.iter().all(|report| report.outcome == Outcome::Passed), "{:#?}", found.reports);
}

/// It passes on all that the plugin before said, or all but one part.
#[test]
fn a_result_is_passed_on_whole() {
    if debians("ptp").is_none() {
        return;
    }
    let parts = [
        r#"s/"interfaces": \[/&{"name":"before0"},/"#,
        r#"s/"ips": \[/&{"address":"198.51.100.7\/32"},/"#,
        r#"s/"routes": \[/&{"dst":"198.51.100.0\/24"},/"#,
        r#"s/"dns": {}/"dns":{"nameservers":["192.0.2.53"]}/"#,
    ];
    for lost in 0..=parts.len() {
        let dir = tempfile::tempdir().unwrap();
        let kept: Vec<&str> =
            parts.iter().enumerate().filter(|(index, _)| *index != lost).map(|(_, part)| *part).collect();
        let script = format!("$REAL | sed '{}'", kept.join("; "));
        let found = found(&wrapped(dir.path(), &script), &find("add-previous-result"));
        assert_eq!(failed(&found).len(), usize::from(lost < parts.len()), "{lost}: {:#?}", found.reports);
    }
}

/// [`THEIRS`] fail with the real plugin. GC and STATUS came after Debian's plugins; they are broken in the
/// tests of the program.
#[test]
fn every_case_is_seen_to_fail() {
    let broken = BROKEN.iter().flat_map(|(_, seen_by)| *seen_by).copied();
    let seen: BTreeSet<&str> = broken.chain(THEIRS).collect();
    let cases = all().filter(|case| case.since <= Version::V1_0_0).map(|case| case.id);
    assert_eq!(cases.collect::<BTreeSet<_>>(), seen);
}

/// Sentences that ask for an error ask for no more: that it is an object is another sentence, with "should".
#[test]
fn a_plugin_that_says_why_it_fails_in_words_has_failed() {
    if debians("ptp").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "out=$($REAL) && printf '%s\\n' \"$out\" && exit 0; echo \"$out\" >&2; exit 1";
    let ids = [
        "env-netns-gone",
        "env-ifname-bad",
        "env-containerid-bad",
        "add-name-taken",
        "add-two-interfaces",
        "add-delegate-missing",
        "input-name-missing",
        "check-no-result",
        "check-interface-gone",
        "error-object",
    ];
    let cases: Vec<_> = ids.iter().flat_map(|id| find(id)).collect();
    assert_eq!(failed(&found(&wrapped(dir.path(), script), &cases)), ["error-object"].into());
}

/// A failure has all that is needed to see it by hand: the script is run, and fails as the case did.
#[test]
fn a_failure_is_shown_by_its_script() {
    let Some(_) = debians("ptp") else { return };
    let dir = tempfile::tempdir().unwrap();
    let subject = wrapped(
        dir.path(),
        "[ $CNI_COMMAND = CHECK ] && { echo '{\"code\":7,\"msg\":\"oh\"}'; exit 9; }; exec $REAL",
    );
    let found = found(&subject, &find("check-after-add"));
    let Outcome::Failed(fault) = &found.reports[0].outcome else { panic!("{:?}", found.reports[0].outcome) };
    assert_eq!(fault.why, "CHECK ended with exit status 9: oh (code 7)");
    let exchange = fault.exchange.as_ref().unwrap();
    assert!(exchange.environment.contains(&("CNI_COMMAND".to_owned(), "CHECK".to_owned())));
    assert!(exchange.input.contains("\"prevResult\":") && exchange.stdout.contains("oh"));
    let printed = testkit::shell(&fault.by_hand);
    assert!(printed.contains("\"ips\"") && printed.trim_end().ends_with("status 9"), "{printed}");
}

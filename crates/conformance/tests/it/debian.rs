//! Plugins of the CNI project as Debian 12 has them (1.1.1, which speak 1.0.0): all that they do otherwise, once.
//! docs/cni-conformance.md shows each by hand.

use std::collections::BTreeSet;

use cni::Version;
use conformance::all;

use crate::scene::{debians, failed, found, not_applicable, subject};

/// What all of them do otherwise.
pub(crate) const THEIRS: [&str; 4] = ["add-previous-result", "env-names", "error-object", "version-echo"];

/// Their own differences and what does not apply to them, beside GC and STATUS, which came later.
#[track_caller]
fn check(name: &str, differs: &[&'static str], others: &[&'static str]) {
    let Some(program) = debians(name) else { return };
    let cases: Vec<_> = all().collect();
    let found = found(&subject(&program), &cases);
    assert_eq!(found.version, Version::V1_0_0);
    let expected: BTreeSet<_> = THEIRS.iter().chain(differs).copied().collect();
    assert_eq!(failed(&found), expected, "{name} differs otherwise");
    let later = cases.iter().filter(|case| case.since > Version::V1_0_0).map(|case| case.id);
    assert_eq!(not_applicable(&found), later.chain(others.iter().copied()).collect(), "{name}");
}

#[test]
fn bridge() {
    check("bridge", &[], &[]);
}

#[test]
fn ptp() {
    check("ptp", &[], &["add-two-interfaces"]);
}

#[test]
fn macvlan() {
    check("macvlan", &[], &[]);
}

/// Without ports to publish, portmap passes on what it gets, and enters no namespace.
#[test]
fn a_plugin_that_makes_nothing_is_not_missed() {
    let (Some(portmap), Some(_)) = (debians("portmap"), debians("ptp")) else { return };
    let list = r#"{"cniVersion":"1.0.0","name":"chain","plugins":[
        {"type":"ptp","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}},
        {"type":"portmap","capabilities":{"portMappings":true}}]}"#;
    let subject = conformance::Subject::with_conf(&portmap, vec!["/usr/lib/cni".into()], list).unwrap();
    let ids = ["check-interface-gone", "env-netns-gone", "error-object"];
    let cases: Vec<_> = ids.iter().flat_map(|id| conformance::find(id)).collect();
    assert_eq!(not_applicable(&found(&subject, &cases)), ids.into());
}

/// A plugin that is called behind another one is judged with it; what is about interfaces alone does not apply.
#[test]
fn a_plugin_behind_another() {
    let (Some(tuning), Some(_)) = (debians("tuning"), debians("ptp")) else { return };
    let list = r#"{"cniVersion":"1.0.0","name":"chain","plugins":[
        {"type":"ptp","ipam":{"type":"host-local","subnet":"10.9.0.0/24","routes":[{"dst":"0.0.0.0/0"}]}},
        {"type":"tuning","sysctl":{"net.core.somaxconn":"500"}}]}"#;
    let subject = conformance::Subject::with_conf(&tuning, vec!["/usr/lib/cni".into()], list).unwrap();
    let cases: Vec<_> = all().filter(|case| case.since <= Version::V1_0_0).collect();
    let found = found(&subject, &cases);
    let differs = failed(&found);
    assert!(
        differs.iter().all(|id| ["env-names", "error-object", "version-echo"].contains(id)),
        "{differs:?}"
    );
    let others = not_applicable(&found);
    assert!(others.contains("add-name-taken") && !others.contains("add-previous-result"), "{others:?}");
}

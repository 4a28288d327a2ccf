//! Machines with other kernels, as `hostgap collect` recorded them: a virtual machine with a virtio card of
//! four queues.
//!
//! Each is one file of texts under lines `==> PATH <==`, as `tail -v -n +1` prints them. Texts that did not
//! change are included once. To make one again, collect a tree in a guest, delete from `after` the files that
//! equal those in `before`, and run `find . -type f | sort | xargs tail -v -n +1`.

use std::fs;
use std::path::Path;

use doctor::{Diagnosis, Severity, Snapshot, Window, diagnose, open};

/// Unpacks a machine's file into a collected tree.
fn unpack(text: &str, tree: &Path) {
    let write = |path: &str, text: &str| {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let parts: Vec<(&str, &str)> = format!("\n{text}")
        .leak()
        .split("\n==> ./")
        .skip(1)
        .map(|part| part.split_once(" <==\n").unwrap())
        .collect();
    for (path, text) in &parts {
        write(path, text);
        if let Some(rest) = path.strip_prefix("before/") {
            write(&format!("after/{rest}"), text);
        }
    }
    // These overwrite the copies from the beginning.
    parts.iter().filter(|(path, _)| path.starts_with("after/")).for_each(|(path, text)| write(path, text));
}

fn read(text: &str) -> (Snapshot, Snapshot, Diagnosis) {
    let directory = tempfile::tempdir().unwrap();
    unpack(text, directory.path());
    let (before, after) = open(directory.path()).unwrap();
    let diagnosis = diagnose(&Window { before: &before, after: &after });
    (before, after, diagnosis)
}

#[track_caller]
fn check(text: &str, kernel: &str, softnet_columns: usize, known: &[&str]) {
    let (before, after, diagnosis) = read(text);
    assert!(after.kernel.starts_with(kernel), "{}", after.kernel);
    assert!(diagnosis.unseen.is_empty(), "{:?}", diagnosis.unseen);
    assert!(after.at_ns > before.at_ns);
    assert_eq!((after.stat.cpus.len(), after.softnet.len(), after.softirqs["NET_RX"].len()), (4, 4, 4));
    assert!(after.counters.has("TcpExtTCPTimeouts") && after.counters.has("UdpRcvbufErrors"));
    let columns = text.split("softnet_stat <==\n").nth(1).unwrap().lines().next().unwrap();
    assert_eq!(columns.split_ascii_whitespace().count(), softnet_columns);
    let card = after.devices.iter().find(|device| device.name.as_str() == "eth0").unwrap();
    assert_eq!((card.driver.as_deref(), card.rx.len(), card.tx.len()), (Some("virtio_net"), 4, 4));
    // Two for each pair of queues, one for the settings, one for the control queue.
    let interrupts = after.interrupts.iter().filter(|interrupt| card.interrupts.contains(&interrupt.number));
    let names: Vec<&str> = interrupts.map(|interrupt| interrupt.name.as_str()).collect();
    assert!(names.iter().any(|name| name.ends_with("-input.3")), "{names:?}");
    let nic = &after.answers.nics[&card.name];
    assert_eq!(nic.channels.map(|channels| (channels.combined, channels.combined_max)), Some((4, 4)));
    assert!(nic.rings.is_some() && nic.statistics.keys().any(|name| name.contains("rx")), "{nic:?}");
    assert!(after.answers.qdiscs.as_ref().unwrap().iter().any(|qdisc| qdisc.kind == "mq" && qdisc.root));
    let codes: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.check.code).collect();
    assert_eq!(codes, known);
    let warning = diagnosis.findings.iter().find(|finding| finding.seen.severity == Severity::Warning);
    assert!(warning.is_none(), "{warning:?}");
}

#[test]
fn linux_6_1_is_read() {
    check(include_str!("../machines/linux-6.1.txt"), "6.1.", 13, &["HG132", "HG140"]);
}

#[test]
fn linux_6_12_is_read() {
    check(include_str!("../machines/linux-6.12.txt"), "6.12.", 15, &["HG140"]);
}

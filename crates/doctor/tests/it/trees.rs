//! Collected trees, and forged ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use doctor::{Diagnosis, DoctorError, ExaminedNetns, Window, collect, destination, diagnose, open};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Collects a tree of this machine.
fn collected(directory: &Path) -> PathBuf {
    let examined = ExaminedNetns::here();
    let (before, after) = (examined.look().unwrap(), examined.look().unwrap());
    let tree = directory.join("tree");
    collect(destination(&tree).unwrap(), &before, &after).unwrap();
    tree
}

fn diagnosis(tree: &Path) -> Diagnosis {
    let (before, after) = open(tree).unwrap();
    diagnose(&Window { before: &before, after: &after })
}

#[test]
fn a_collected_tree_is_diagnosed_as_its_machine_was() {
    let examined = ExaminedNetns::here();
    let (before, after) = (examined.look().unwrap(), examined.look().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    collect(destination(&tree).unwrap(), &before, &after).unwrap();
    let (first, second) = open(&tree).unwrap();
    // Everything that is read must be equal: compare the Debug text of both.
    assert_eq!(format!("{first:#?}"), format!("{:#?}", before.0));
    assert_eq!(format!("{second:#?}"), format!("{:#?}", after.0));
    let there = diagnose(&Window { before: &before.0, after: &after.0 });
    let here = diagnose(&Window { before: &first, after: &second });
    assert_eq!(format!("{:?}", here.findings), format!("{:?}", there.findings));
    assert_eq!(here.blind, Vec::<&str>::new());
    let error = destination(&tree).unwrap_err();
    assert!(matches!(error, DoctorError::Occupied { .. }), "{error}");
}

#[test]
fn a_directory_that_is_no_tree_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let check = |text: &str, expected: &str| {
        fs::write(directory.path().join("collected.json"), text).unwrap();
        let error = open(directory.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    assert!(open(directory.path()).unwrap_err().to_string().starts_with("read "));
    check("{", "is no part of a collected tree");
    check("{\"schema\": 9, \"looks\": []}", "its schema is 9");
    check("{\"schema\": -1, \"before_ns\": 0, \"after_ns\": 1}", "is no part of a collected tree");
    check("{\"schema\": 1, \"before_ns\": 5, \"after_ns\": 5}", "is not later than its first");
    check("{\"schema\": 1, \"before_ns\": 0, \"after_ns\": 1}", "before: no such file");
    fs::create_dir(directory.path().join("before")).unwrap();
    check("{\"schema\": 1, \"before_ns\": 0, \"after_ns\": 1}", "answers.json");
    check(&format!("{}1", "[".repeat(100_000)), "is no part of a collected tree");
}

#[test]
fn nothing_outside_of_a_tree_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "HOSTGAP-SECRET 1 2 3\n").unwrap();
    let tree = collected(directory.path());
    let replace = |file: &str, target: &Path| {
        let file = tree.join("after").join(file);
        fs::remove_file(&file).unwrap();
        symlink(target, file).unwrap();
    };
    replace("proc/thread-self/net/softnet_stat", &secret);
    replace("proc/sys/net/core/default_qdisc", &secret);
    replace("proc/sys/net/core/somaxconn", Path::new("rmem_max"));
    fs::remove_dir_all(tree.join("after/sys/class/net")).unwrap();
    symlink("/sys/class/net", tree.join("after/sys/class/net")).unwrap();
    let diagnosis = diagnosis(&tree);
    let text = format!("{diagnosis:?}");
    assert!(!text.contains("HOSTGAP-SECRET"), "{text}");
    for file in ["softnet_stat", "default_qdisc", "somaxconn", "sys/class/net"] {
        let is_named = |text: &&String| text.contains(file) && text.contains("a symbolic link");
        assert_eq!(diagnosis.unseen.iter().filter(is_named).count(), 1, "{file}: {:#?}", diagnosis.unseen);
    }
    let blind = ["links (sys/class/net)", "the CPUs' backlogs (proc/net/softnet_stat)"];
    assert_eq!(diagnosis.blind, blind);

    // The snapshots and the header belong to the tree too.
    let moved = directory.path().join("moved");
    fs::rename(tree.join("after"), &moved).unwrap();
    symlink(&moved, tree.join("after")).unwrap();
    let error = open(&tree).unwrap_err().to_string();
    assert!(error.contains("tree/after: a symbolic link"), "{error}");
    fs::rename(tree.join("collected.json"), directory.path().join("head")).unwrap();
    symlink(directory.path().join("head"), tree.join("collected.json")).unwrap();
    let error = open(&tree).unwrap_err().to_string();
    assert!(error.contains("collected.json: a symbolic link"), "{error}");
}

#[test]
fn what_stands_where_a_file_belongs_is_named_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let tree = collected(directory.path());
    let at = |file: &str| tree.join("after").join(file);
    let emptied = |file: &str| {
        fs::remove_file(at(file)).unwrap();
        at(file)
    };
    mknodat(CWD, emptied("proc/softirqs"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(emptied("proc/sys/net/core/somaxconn")).unwrap();
    let huge = fs::File::create(emptied("proc/sys/net/core/rmem_max")).unwrap();
    huge.set_len(1 << 42).unwrap();
    fs::write(at("proc/meminfo"), b"\xff\x1b[2J\n").unwrap();
    emptied("proc/interrupts");
    let diagnosis = diagnosis(&tree);
    for (file, why) in [
        ("proc/softirqs", "it is a pipe"),
        ("somaxconn", "it is a directory"),
        ("rmem_max", "bytes, the most that is read"),
        ("proc/meminfo", "was not understood"),
        ("proc/interrupts", "no such file or directory"),
    ] {
        let is_named = |text: &&String| text.contains(file) && text.contains(why);
        assert_eq!(diagnosis.unseen.iter().filter(is_named).count(), 1, "{file}: {:#?}", diagnosis.unseen);
    }
    // Beside them the interrupts of cards, where this machine has cards.
    assert_eq!(diagnosis.blind[0], "soft interrupts (proc/softirqs)");
    // Without the CPUs no diagnosis is possible.
    mknodat(CWD, emptied("proc/stat"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let error = open(&tree).unwrap_err().to_string();
    assert!(error.contains("proc/stat: it is a pipe"), "{error}");
}

#[test]
fn a_tree_that_lacks_a_part_of_the_network_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let tree = collected(directory.path());
    fs::remove_dir_all(tree.join("before/sys")).unwrap();
    fs::remove_dir_all(tree.join("after/proc/thread-self")).unwrap();
    let diagnosis = diagnosis(&tree);
    let counters = "counters of the stack (proc/net/snmp, proc/net/netstat)";
    let blind = [counters, "the CPUs' backlogs (proc/net/softnet_stat)", "links (sys/class/net)"];
    assert_eq!(diagnosis.blind, blind);
}

#[test]
fn what_could_not_be_read_there_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let tree = collected(directory.path());
    let refused = "could not read /proc/interrupts: permission denied";
    for look in ["before", "after"] {
        fs::remove_file(tree.join(look).join("proc/interrupts")).unwrap();
        fs::write(tree.join(look).join("unseen.json"), format!("[\"{refused}\"]")).unwrap();
    }
    assert_eq!(diagnosis(&tree).unseen, [refused]);
}

#[test]
fn a_tree_gets_a_directory_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir_all(at("full/of")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "").unwrap();
    symlink(at("empty"), at("link")).unwrap();
    for (name, why) in [
        ("full", "full is not empty"),
        ("file", "file is no directory"),
        ("link", "link is a symbolic link"),
        ("file/below", "below is no directory"),
    ] {
        let error = destination(&at(name)).unwrap_err();
        let occupied = matches!(error, DoctorError::Occupied { .. });
        assert!(occupied && error.to_string().contains(why), "{error:?}");
    }
    destination(&at("empty")).unwrap();
}

/// Numbers beyond any real count. Their sums, products and differences must still be valid numbers.
#[test]
fn numbers_of_any_size_are_judged() {
    const MOST: &str = "1099511627776";
    let directory = tempfile::tempdir().unwrap();
    let tree = collected(directory.path());
    for (first, second) in [("0", MOST), (MOST, "0")] {
        for (look, number) in [("before", first), ("after", second)] {
            let mut pending = vec![tree.join(look)];
            while let Some(path) = pending.pop() {
                if path.is_dir() {
                    pending.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                } else if path.extension().is_none() && !path.ends_with("osrelease") {
                    let text = fs::read_to_string(&path).unwrap();
                    let words = text.split_inclusive([' ', '\n', '\t', ':']).map(|word| {
                        let bare = word.trim_end_matches([' ', '\n', '\t', ':']);
                        let is_number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
                        let rest = &word[bare.len()..];
                        if is_number && !rest.starts_with(':') {
                            format!("{number}{rest}")
                        } else {
                            word.to_owned()
                        }
                    });
                    let text: String = words.collect();
                    fs::write(&path, text).unwrap();
                }
            }
        }
        diagnosis(&tree);
    }
}

//! Rules on the text of one source file.

use super::changes;

/// Longer files are tables. Each is listed here with its reason beside it.
const TABLES: [&str; 0] = [];
const LINES_MAX: usize = 500;
/// The columns of a comment. rustfmt breaks none, so a wider one stays as it was typed.
const COMMENT_MAX: usize = 120;

/// Names that do not describe a file's content.
const EMPTY_NAMES: [&str; 5] = ["util", "utils", "common", "helpers", "manager"];
/// Programs that must not be started. They appear only as text for users to copy.
const PROGRAMS: [&str; 5] = ["ip", "tc", "sysctl", "ethtool", "brctl"];

/// Crates that may print.
const TALKERS: [&str; 3] = ["hostgap", "report", "xtask"];
/// The crates that may have unsafe code outside tests.
const UNSAFE_HOMES: [&str; 2] = ["crates/linux/src/", "crates/bpf/src/"];

/// The offences of the file at `path` (from the top of the checkout).
pub(crate) fn check(path: &str, content: &str) -> Vec<String> {
    let mut offences = Vec::new();
    let mut offend = |line: usize, what: &str| offences.push(format!("{path}:{line}: {what}"));
    let lines = content.lines().count();
    if lines > LINES_MAX && !TABLES.contains(&path) {
        offend(lines, &format!("a file has {LINES_MAX} lines at most; split it by what it is about"));
    }
    let stem = path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default();
    if EMPTY_NAMES.contains(&stem) {
        offend(1, "the name says nothing; name what is in it");
    }
    if !path.ends_with(".rs") {
        return offences;
    }
    if !is_test_file(path) && !content.starts_with("//!") {
        offend(1, "a module begins with //!: what it is, what it is not");
    }
    let tests_from = content.lines().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(usize::MAX);
    for (index, line) in content.lines().enumerate() {
        let in_tests = is_test_file(path) || index >= tests_from;
        for what in offences_of_line(path, line, in_tests) {
            offend(index + 1, what);
        }
    }
    offences
}

fn offences_of_line(path: &str, line: &str, in_tests: bool) -> Vec<&'static str> {
    let mut found = Vec::new();
    let code = code_of(line);
    // In two halves, because this file is checked too.
    if [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")].iter().any(|mark| line.contains(mark))
    {
        found.push("unfinished work is no comment; do it, or say in the manual what is not done");
    }
    if is_wide_comment(line) {
        found.push("a comment has 120 columns at most; wrap its paragraph");
    }
    if changes_namespace(code) && !path.starts_with("crates/linux/src/netns") {
        found.push("only linux::netns changes a thread's namespace");
    }
    if has_unsafe(code) && !UNSAFE_HOMES.iter().any(|home| path.starts_with(home)) && !is_test_file(path) {
        found.push("unsafe code lives in linux and bpf");
    }
    if code.contains(concat!("#[ign", "ore]")) {
        found.push("an ignored test says why: it is a role that another test starts");
    }
    if in_tests {
        return found;
    }
    if code.contains(concat!(".unw", "rap()")) {
        found.push("outside tests, expect() states the invariant");
    }
    if changes::offends(path, code) {
        found.push("plan changes the machine; who else does is named in ARCHITECTURE.md and tidy/changes.rs");
    }
    if PROGRAMS.iter().any(|program| code.contains(&format!("Command::new(\"{program}\")"))) {
        found.push("the machine is changed through netlink and files, not by running commands");
    }
    let prints = ["println!(", "eprintln!(", "print!(", "eprint!(", "dbg!("];
    let talker = TALKERS.iter().any(|name| path.starts_with(&format!("crates/{name}/")));
    // A build script prints its instructions for cargo, and an example what it found.
    let talker = talker || path.ends_with("/build.rs") || path.contains("/examples/");
    if !talker && prints.iter().any(|print| code.contains(print)) {
        found.push("nothing below the binary and report prints");
    }
    found
}

/// The line without its comment. String literals are not parsed, so a `//` in a string cuts the line short.
/// That can hide an offence, but never invents one.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Whether a line is a comment that could be broken and is not. Tables and addresses cannot.
fn is_wide_comment(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
    let text = comment.trim_start_matches(['/', '!']).trim_start();
    line.chars().count() > COMMENT_MAX && !text.starts_with('|') && !text.contains("://")
}

fn changes_namespace(code: &str) -> bool {
    [
        concat!("set", "ns("),
        concat!("move_into_link_", "name_space("),
        concat!("move_into_thread_", "name_spaces("),
    ]
    .iter()
    .any(|call| code.contains(call))
}

fn has_unsafe(code: &str) -> bool {
    ["{", "fn ", "impl ", "extern "]
        .iter()
        .any(|next| code.contains(&format!("{} {next}", concat!("un", "safe"))))
}

/// Whether a file holds only tests, or belongs to the crate that serves only tests.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/")
        || path.contains("/benches/")
        || path.ends_with("/tests.rs")
        || path.starts_with("crates/testkit/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn offends(path: &str, line: &str, expected: &str) {
        let found = check(path, &format!("//! Header.\n{line}\n"));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }

    #[track_caller]
    fn passes(path: &str, content: &str) {
        assert_eq!(check(path, content), Vec::<String>::new());
    }

    #[test]
    fn lines_that_offend() {
        offends("crates/plan/src/a.rs", "let x = y.unwrap();", "expect()");
        offends("crates/plan/src/a.rs", "println!(\"x\");", "prints");
        offends("crates/plan/src/a.rs", "Command::new(\"ip\")", "netlink");
        offends("crates/plan/src/a.rs", concat!("// TO", "DO: later"), "unfinished");
        offends("crates/plan/src/a.rs", concat!("set", "ns(fd)"), "namespace");
        offends("crates/linux/src/link.rs", concat!("set", "ns(fd)"), "namespace");
        offends("crates/plan/src/a.rs", concat!("un", "safe { x() }"), "unsafe");
        offends("crates/plan/tests/it/a.rs", concat!("#[ign", "ore]"), "says why");
        offends("crates/load/src/a.rs", concat!("un", "safe { x() }"), "unsafe");
        offends("crates/lab/src/race.rs", "netns::delete(&name)", "plan changes");
        offends("crates/plan/src/util.rs", "fn x() {}", "says nothing");
        offends("crates/tune/src/a.rs", &format!("    /// {}", "word ".repeat(24)), "120 columns");
    }

    #[test]
    fn lines_that_do_not() {
        passes("crates/plan/src/a.rs", "//! Header.\n// A comment on .unwrap() and println!()\n");
        passes("crates/plan/src/a.rs", "//! Header.\n#[cfg(test)]\nmod tests { x.unwrap(); }\n");
        passes("crates/plan/tests/it/main.rs", "x.unwrap(); Command::new(\"ip\"); println!(\"x\");\n");
        passes("crates/report/src/a.rs", "//! Header.\nprintln!(\"x\");\n");
        passes("crates/bpf/build.rs", "//! Header.\nprintln!(\"x\");\n");
        passes("crates/load/examples/a.rs", "//! Header.\nprintln!(\"x\");\n");
        passes("crates/lab/src/home.rs", "//! Header.\nnetns::delete(&name)\n");
        passes("crates/lab/tests/it/home.rs", "Netns::create(&name)\n");
        passes("crates/tune/src/a.rs", &format!("//! {}\n", "word ".repeat(23)));
        passes("crates/tune/src/a.rs", &format!("//! | {}|\n", "cell | ".repeat(20)));
        passes("crates/tune/src/a.rs", &format!("//! Header.\n// https://x/{}\n", "long".repeat(40)));
        passes("crates/linux/src/netns.rs", concat!("//! Header.\nset", "ns(fd)\n"));
        passes("crates/linux/src/a.rs", concat!("//! Header.\nun", "safe { x() }\n"));
    }

    #[test]
    fn files_that_offend() {
        let long = format!("//! Header.\n{}", "fn x() {}\n".repeat(LINES_MAX));
        assert!(check("crates/plan/src/a.rs", &long)[0].contains("lines at most"));
        assert!(check("crates/plan/src/a.rs", "fn x() {}\n")[0].contains("begins with //!"));
    }
}

//! Files that set parameters at every start, in the format of sysctl.d(5).
//!
//! Two programs read them, systemd-sysctl and procps' `sysctl --system`. They agree except for `/etc/sysctl.conf`,
//! which procps reads last and systemd only where a distribution links `99-sysctl.conf` to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;

use crate::{Files, Result};

/// Directories of such files, most important first: a file hides those of the same name in later directories.
const DIRECTORIES: [&str; 5] =
    ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];
const LAST: &str = "etc/sysctl.conf";

/// A line that sets a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The file, from `/`.
    pub file: String,
    /// The parameter's path below `/proc/sys`, or a pattern of glob(7) for several.
    pub key: String,
    /// The value as written in the file.
    pub value: String,
}

/// The contents of all these files of a machine.
#[derive(Debug, Clone, Default)]
pub struct Configured {
    /// In the order in which they are read: of two for one parameter the later one counts.
    assignments: Vec<Assignment>,
    /// Parameters that no pattern sets.
    exempt: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Set { key: String, value: String },
    Exempt { key: String },
}

impl Configured {
    /// Reads the files in order: by name, whatever their directory, and `/etc/sysctl.conf` last.
    ///
    /// # Errors
    /// A file is not readable.
    pub fn read(files: &Files) -> Result<Configured> {
        let mut configured = Configured::default();
        let mut texts = BTreeSet::new();
        let mut by_name = BTreeMap::new();
        for directory in DIRECTORIES {
            for name in files.list(directory)?.into_iter().filter(|name| name.ends_with(".conf")) {
                by_name.entry(name).or_insert(directory);
            }
        }
        for (name, directory) in by_name {
            let path = format!("{directory}/{name}");
            let text = files.read(&path)?.unwrap_or_default();
            configured.add(&path, &text);
            texts.insert(text);
        }
        // Where 99-sysctl.conf is a link to it, it was there already.
        let last = files.read(LAST)?.filter(|text| !texts.contains(text));
        configured.add(LAST, &last.unwrap_or_default());
        Ok(configured)
    }

    /// The lines that set a parameter, of which the last one counts. Patterns set what no line names.
    pub fn of(&self, key: &str) -> Vec<&Assignment> {
        let named: Vec<_> = self.assignments.iter().filter(|line| line.key == key).collect();
        if !named.is_empty() || self.exempt.contains(key) {
            return named;
        }
        self.assignments.iter().filter(|line| is_pattern(&line.key) && matches(&line.key, key)).collect()
    }

    /// All assignments in order, with each pattern replaced by the parameters among `keys` that it sets.
    pub fn resolved(&self, keys: &[&str]) -> Vec<Assignment> {
        let by_name = self.assignments.iter().filter(|line| !is_pattern(&line.key)).cloned();
        let by_pattern = keys.iter().flat_map(|key| {
            let lines = self.of(key).into_iter().filter(|line| is_pattern(&line.key));
            lines.map(|line| Assignment { key: (*key).to_owned(), ..line.clone() })
        });
        by_name.chain(by_pattern).collect()
    }

    fn add(&mut self, path: &str, text: &str) {
        for line in text.lines().filter_map(line) {
            match line {
                Line::Set { key, value } => {
                    self.assignments.push(Assignment { file: format!("/{path}"), key, value });
                }
                Line::Exempt { key } => {
                    self.exempt.insert(key);
                }
            }
        }
    }
}

/// `None` for an empty line, a comment and an invalid line. A `-` before an assignment ignores its errors; before a
/// name alone it excludes the name from patterns.
fn line(text: &str) -> Option<Line> {
    let text = text.trim();
    if text.is_empty() || text.starts_with(['#', ';']) {
        return None;
    }
    match text.split_once('=') {
        Some((key, value)) => {
            let key = key.trim();
            let key = path(key.strip_prefix('-').unwrap_or(key));
            Some(Line::Set { key, value: value.trim().to_owned() })
        }
        None => Some(Line::Exempt { key: path(text.strip_prefix('-')?) }),
    }
}

/// A name as a path. Whichever of dot and slash comes first separates; the other one is a dot in a link's name.
fn path(name: &str) -> String {
    let dots = name.find(['.', '/']).is_some_and(|at| name.as_bytes()[at] == b'.');
    let swapped = |character| match character {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let path: String = if dots { name.chars().map(swapped).collect() } else { name.to_owned() };
    path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

fn is_pattern(key: &str) -> bool {
    key.contains(['*', '?', '['])
}

/// As glob(3) does it among the files below `/proc/sys`: no star reaches over a slash.
fn matches(pattern: &str, key: &str) -> bool {
    let (Ok(pattern), Ok(key)) = (CString::new(pattern), CString::new(key)) else { return false };
    // SAFETY: both are strings with an end, alive until the call returns, and nothing is written.
    unsafe { libc::fnmatch(pattern.as_ptr(), key.as_ptr(), libc::FNM_PATHNAME | libc::FNM_PERIOD) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(texts: &[(&str, &str)]) -> Configured {
        let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Configured::read(&Files::of(texts.collect())).unwrap()
    }

    #[track_caller]
    fn check(configured: &Configured, key: &str, expected: &[(&str, &str)]) {
        let lines = configured.of(key);
        let lines: Vec<_> = lines.iter().map(|line| (line.file.as_str(), line.value.as_str())).collect();
        assert_eq!(lines, expected, "{key}");
    }

    #[test]
    fn the_first_separator_says_which_one_separates() {
        for (name, expected) in [
            ("net.ipv4.tcp_rmem", "net/ipv4/tcp_rmem"),
            ("net/ipv4/tcp_rmem", "net/ipv4/tcp_rmem"),
            ("net/ipv4/conf/enp3s0.200/forwarding", "net/ipv4/conf/enp3s0.200/forwarding"),
            ("net.ipv4.conf.enp3s0/200.forwarding", "net/ipv4/conf/enp3s0.200/forwarding"),
            ("/net//core/somaxconn", "net/core/somaxconn"),
        ] {
            assert_eq!(path(name), expected);
        }
    }

    #[test]
    fn a_line_sets_exempts_or_says_nothing() {
        let set = |key: &str, value: &str| Some(Line::Set { key: key.to_owned(), value: value.to_owned() });
        assert_eq!(line(" net.ipv4.tcp_ecn=1 "), set("net/ipv4/tcp_ecn", "1"));
        assert_eq!(
            line("-net/ipv4/tcp_rmem = 4096\t87380 6291456"),
            set("net/ipv4/tcp_rmem", "4096\t87380 6291456")
        );
        assert_eq!(line("kernel.core_pattern = |/bin/a b=c"), set("kernel/core_pattern", "|/bin/a b=c"));
        assert_eq!(
            line("-net.ipv4.conf.all.rp_filter"),
            Some(Line::Exempt { key: "net/ipv4/conf/all/rp_filter".to_owned() })
        );
        for nothing in ["", "  ", "# net.ipv4.tcp_ecn = 1", "  ; net.ipv4.tcp_ecn = 1", "net.ipv4.tcp_ecn"] {
            assert_eq!(line(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn names_order_files_and_hide_those_of_later_directories() {
        let configured = machine(&[
            ("usr/lib/sysctl.d/50-a.conf", "net.core.somaxconn = 1\n"),
            ("etc/sysctl.d/60-b.conf", "net.core.somaxconn = 2\nnet.ipv4.tcp_ecn = 1\n"),
            ("usr/lib/sysctl.d/60-b.conf", "net.core.somaxconn = 3\nnet.ipv4.tcp_sack = 0\n"),
            ("run/sysctl.d/70-c.conf", "net/core/somaxconn = 4\n"),
            ("etc/sysctl.d/README", "net.core.somaxconn = 5\n"),
            // A link to /dev/null hides, too.
            ("etc/sysctl.d/80-d.conf", ""),
            ("usr/lib/sysctl.d/80-d.conf", "net.core.somaxconn = 6\n"),
        ]);
        let expected = [
            ("/usr/lib/sysctl.d/50-a.conf", "1"),
            ("/etc/sysctl.d/60-b.conf", "2"),
            ("/run/sysctl.d/70-c.conf", "4"),
        ];
        check(&configured, "net/core/somaxconn", &expected);
        check(&configured, "net/ipv4/tcp_sack", &[]);
    }

    #[test]
    fn sysctl_conf_is_last_and_is_there_once() {
        let (ours, text) = ("etc/sysctl.d/99-z.conf", "net.core.somaxconn = 1\n");
        let configured = machine(&[(ours, "net.core.somaxconn = 2\n"), ("etc/sysctl.conf", text)]);
        let both = [("/etc/sysctl.d/99-z.conf", "2"), ("/etc/sysctl.conf", "1")];
        check(&configured, "net/core/somaxconn", &both);
        let linked = machine(&[("etc/sysctl.d/99-sysctl.conf", text), ("etc/sysctl.conf", text)]);
        check(&linked, "net/core/somaxconn", &[("/etc/sysctl.d/99-sysctl.conf", "1")]);
    }

    #[test]
    fn patterns_set_what_no_line_names_and_none_exempts() {
        let text =
            "net.ipv4.conf.*.rp_filter = 2\nnet.ipv4.conf.eth0.rp_filter = 0\n-net.ipv4.conf.all.rp_filter\n";
        let configured = machine(&[("etc/sysctl.d/50-a.conf", text)]);
        let file = "/etc/sysctl.d/50-a.conf";
        check(&configured, "net/ipv4/conf/lo/rp_filter", &[(file, "2")]);
        check(&configured, "net/ipv4/conf/eth0/rp_filter", &[(file, "0")]);
        check(&configured, "net/ipv4/conf/all/rp_filter", &[]);
        // No star reaches over a slash.
        check(&configured, "net/ipv4/conf/a/b/rp_filter", &[]);
        let keys = ["net/ipv4/conf/lo/rp_filter", "net/ipv4/conf/all/rp_filter", "net/core/somaxconn"];
        let resolved: Vec<_> =
            configured.resolved(&keys).into_iter().map(|line| (line.key, line.value)).collect();
        let expected = [("net/ipv4/conf/eth0/rp_filter", "0"), ("net/ipv4/conf/lo/rp_filter", "2")];
        assert_eq!(resolved, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
}

//! Which Debian packages are wanted.

/// Which of a release's suites a package comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// The stable release, with its updates.
    Stable,
    /// Newer versions built for the release.
    Backports,
}

/// The packages to fetch, and the parts of them to keep.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Request<'a> {
    /// A name for the answer, under which it is remembered.
    pub name: &'a str,
    pub packages: &'a [&'a str],
    /// Where they come from, each in its newest version.
    pub suite: Suite,
    /// Prefixes of the names of packages to keep; if empty, every package that this machine lacks to run them.
    pub keep: &'a [&'a str],
}

//! Which Debian packages are wanted.

/// Which of a release's suites a package comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// The stable release, with its updates.
    Stable,
    /// Newer versions built for the release.
    Backports,
}

/// Which of Debian's releases a package comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// This machine's. What is installed here is used as it is and not fetched, unless parts are picked
    /// ([`PackageRequest::keep`]).
    Own,
    /// The one after it. Everything is fetched, down to the C library, and runs beside this machine's own.
    Next,
}

/// The packages to fetch, and the parts of them to keep.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PackageRequest<'a> {
    /// A name for the answer, under which it is remembered.
    pub name: &'a str,
    pub packages: &'a [&'a str],
    /// Where they come from, each in its newest version.
    pub suite: Suite,
    pub release: Release,
    /// Prefixes of the names of packages to keep; if empty, every package that is needed to run them.
    pub keep: &'a [&'a str],
}

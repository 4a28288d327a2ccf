//! The crate's one error: what was attempted, on what, and the kernel's reason.

use std::fmt;
use std::io;

/// A failed operation on the kernel, a file or a program.
///
/// Prints as `create link hgbr0 in namespace x: operation not supported`, so it can follow "could not". That text
/// already contains the reason. So that a chain of causes does not repeat it, `source()` is empty and the cause is a
/// field.
#[derive(Debug)]
pub struct Error {
    /// What was attempted, on what.
    pub attempted: String,
    /// The reason; its errno, if any, is in `raw_os_error`.
    pub source: io::Error,
}

/// A result whose error is [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A refusal by netlink for which the kernel gave a reason in words (`NLMSGERR_ATTR_MSG`).
#[derive(Debug)]
struct Explained {
    errno: i32,
    words: String,
}

impl Error {
    /// An error from what was attempted and why it failed.
    pub fn new(attempted: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error { attempted: attempted.into(), source: source.into() }
    }

    /// The kernel's error number, `libc::EEXIST` for instance; `None` if the error is not the kernel's.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error().or_else(|| {
            let explained = self.source.get_ref()?.downcast_ref::<Explained>()?;
            Some(explained.errno)
        })
    }

    /// True if the kernel's error number is the given one.
    pub fn is(&self, errno: i32) -> bool {
        self.errno() == Some(errno)
    }

    /// Why it failed, without what was attempted.
    pub fn reason(&self) -> String {
        match self.source.raw_os_error() {
            Some(errno) => errno_words(errno),
            None => self.source.to_string(),
        }
    }

    /// The same, with how taking back went what had been made until then: what failed first is what counts, but what is
    /// left is to be known too.
    #[must_use]
    pub fn and_left(self, taken_back: Result<()>) -> Error {
        let Err(left) = taken_back else { return self };
        let left = format!("what was made until then is left: {left}");
        let explained = self.source.get_ref().and_then(|why| why.downcast_ref::<Explained>());
        let source = match (self.errno(), explained) {
            (Some(errno), Some(Explained { words, .. })) => refusal(errno, Some(format!("{words}; {left}"))),
            (Some(errno), None) => refusal(errno, Some(left)),
            (None, _) => io::Error::new(self.source.kind(), format!("{}; {left}", self.source)),
        };
        Error { attempted: self.attempted, source }
    }

    /// An error for text that does not have the expected form.
    pub(crate) fn invalid(attempted: impl Into<String>, why: impl Into<String>) -> Error {
        Error::new(attempted, io::Error::new(io::ErrorKind::InvalidData, why.into()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.attempted, self.reason())
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", errno_words(self.errno), self.words.trim_end_matches('.'))
    }
}

impl std::error::Error for Explained {}

/// Adds the attempted operation to an error.
pub(crate) trait Attempt<T> {
    /// The text is only made when it is needed.
    fn attempt<S: Into<String>>(self, attempted: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<io::Error>> Attempt<T> for std::result::Result<T, E> {
    fn attempt<S: Into<String>>(self, attempted: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Error::new(attempted(), error))
    }
}

/// A refusal with an error number and, if there are any, the kernel's own words.
pub(crate) fn refusal(errno: i32, words: Option<String>) -> io::Error {
    match words {
        None => io::Error::from_raw_os_error(errno),
        Some(words) => {
            let kind = io::Error::from_raw_os_error(errno).kind();
            io::Error::new(kind, Explained { errno, words })
        }
    }
}

/// The C library's text for an error number, as a fragment: lower case, without the number.
fn errno_words(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.strip_suffix(&format!(" (os error {errno})")).unwrap_or(&text);
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        // Acronyms such as "RTNETLINK" keep their capitals.
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: io::Error, text: &str, errno: Option<i32>) {
        let error = Error::new("create link hgbr0 in namespace x", source);
        assert_eq!(error.to_string(), format!("create link hgbr0 in namespace x: {text}"));
        assert_eq!(error.errno(), errno);
    }

    #[test]
    fn text_is_a_fragment_with_attempt_and_reason() {
        check(refusal(libc::EOPNOTSUPP, None), "operation not supported", Some(libc::EOPNOTSUPP));
        let words = Some("Unknown device type.".to_owned());
        check(
            refusal(libc::EOPNOTSUPP, words),
            "operation not supported: Unknown device type",
            Some(libc::EOPNOTSUPP),
        );
        check(io::Error::other("nft is not installed"), "nft is not installed", None);
    }

    /// The second error alone was said once, as if the first had never been.
    #[test]
    fn what_could_not_be_taken_back_stands_behind_what_failed_first() {
        let left = || Err(Error::new("unmount /x", refusal(libc::EBUSY, None)));
        let tail = "what was made until then is left: unmount /x: device or resource busy";
        for (source, first, errno) in [
            (refusal(libc::EPERM, None), "operation not permitted: ", Some(libc::EPERM)),
            (
                refusal(libc::EPERM, Some("not by you".to_owned())),
                "operation not permitted: not by you; ",
                Some(libc::EPERM),
            ),
            (io::Error::other("the verifier said no"), "the verifier said no; ", None),
        ] {
            let error = Error::new("load", source).and_left(left());
            assert_eq!(error.to_string(), format!("load: {first}{tail}"));
            assert_eq!(error.errno(), errno);
        }
        let error = Error::new("load", refusal(libc::EPERM, None)).and_left(Ok(()));
        assert_eq!(error.to_string(), "load: operation not permitted");
    }
}

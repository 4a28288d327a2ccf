//! The names of networks and containers.

/// What is expected of a name, for messages.
pub(crate) const RULE: &str = "letters, digits, `_`, `.` and `-` are expected, and a letter or digit first";

/// "Must start with an alphanumeric character, optionally followed by any combination of one or more alphanumeric
/// characters, underscore, dot (.) or hyphen (-)": networks (section 1) and `CNI_CONTAINERID` (section 2).
pub(crate) fn is_name(text: &str) -> bool {
    let inner = |sign: char| sign.is_ascii_alphanumeric() || "_.-".contains(sign);
    text.starts_with(|sign: char| sign.is_ascii_alphanumeric()) && text.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_could_be_that_of_a_file() {
        for good in ["a", "7", "a.b-c_9"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", "-a", "a/b", "../etc", "a b", "\u{e9}"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}

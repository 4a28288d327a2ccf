//! The words for what cannot be had.

use std::collections::BTreeMap;

use super::CloudError;

/// The words for errors, the same each time that one comes again. The cloud's own differ: they have times in them, and
/// sums of the request.
#[derive(Debug, Default)]
pub(super) struct ErrorTexts(BTreeMap<String, String>);

impl ErrorTexts {
    /// Those that were found when this error came first.
    pub(super) fn of(&mut self, error: &CloudError) -> String {
        self.0.entry(error.kind()).or_insert_with(|| error.in_words()).clone()
    }

    /// After this the next error is the first one.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(attempt: &str, message: &str) -> CloudError {
        CloudError::Refused {
            attempt: attempt.to_owned(),
            action: "CreateRoute",
            status: 400,
            code: "RequestExpired".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn an_error_that_comes_again_has_the_words_of_the_first_one() {
        let mut texts = ErrorTexts::default();
        let first = texts.of(&refused("add a route", "Timestamp date is 12:00"));
        assert!(first.contains("12:00"));
        assert_eq!(texts.of(&refused("add a route", "Timestamp date is 12:01")), first);
        assert_ne!(texts.of(&refused("add another route", "Timestamp date is 12:01")), first);
        texts.forget();
        assert!(texts.of(&refused("add a route", "Timestamp date is 12:02")).contains("12:02"));
    }
}

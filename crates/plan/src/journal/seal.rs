//! What a journal was at a moment, in a few numbers.

use serde::{Deserialize, Serialize};

use crate::crc32;

/// The beginning of a journal, so that a journal that has lost some of it, or another one, can be recognized. What is
/// written behind it later changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seal {
    /// How many steps were begun in it.
    pub steps: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The CRC-32 of those bytes, as gzip has it.
    pub crc32: u32,
}

impl Seal {
    /// Of that beginning and what follows it, in which some steps begin.
    pub(super) fn and(self, following: &[u8], steps: usize) -> Seal {
        Seal {
            steps: self.steps + steps as u64,
            bytes: self.bytes + following.len() as u64,
            crc32: crc32::and(self.crc32, following),
        }
    }

    /// Says why a journal, which is read from these bytes and has that seal itself, does not begin as this one.
    pub(crate) fn check(&self, found: &Seal, bytes: &[u8]) -> Result<(), String> {
        if found.steps < self.steps {
            return Err(format!("it has {} of the {} steps that were done", found.steps, self.steps));
        }
        let beginning = usize::try_from(self.bytes).ok().and_then(|length| bytes.get(..length));
        match beginning {
            Some(beginning) if crc32::of(beginning) == self.crc32 => Ok(()),
            Some(_) | None => Err("it is not as it was when its steps were done".to_owned()),
        }
    }
}

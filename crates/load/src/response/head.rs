//! Lines of a head, and the few facts in them that decide where a response ends.

use super::{LINE_BYTES_MAX, Malformed};

/// The start of a line that was split over several reads.
#[derive(Debug, Clone)]
pub(super) struct Carry {
    bytes: [u8; LINE_BYTES_MAX],
    /// Length of the line so far, which may be more than is kept.
    length: usize,
}

impl Default for Carry {
    fn default() -> Carry {
        Carry { bytes: [0; LINE_BYTES_MAX], length: 0 }
    }
}

impl Carry {
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let start = self.length.min(LINE_BYTES_MAX);
        let keep = bytes.len().min(LINE_BYTES_MAX - start);
        self.bytes[start..start + keep].copy_from_slice(&bytes[..keep]);
        self.length += bytes.len();
    }

    pub(super) fn line(&self) -> HeadLine<'_> {
        HeadLine::cut(&self.bytes[..self.length.min(LINE_BYTES_MAX)], self.length <= LINE_BYTES_MAX)
    }
}

/// A line without its line end, or the first [`LINE_BYTES_MAX`] bytes of a longer one.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadLine<'a> {
    text: &'a [u8],
    whole: bool,
}

impl<'a> HeadLine<'a> {
    /// From all the bytes before the newline.
    pub(super) fn new(bytes: &'a [u8]) -> HeadLine<'a> {
        HeadLine::cut(&bytes[..bytes.len().min(LINE_BYTES_MAX)], bytes.len() <= LINE_BYTES_MAX)
    }

    fn cut(text: &'a [u8], whole: bool) -> HeadLine<'a> {
        // RFC 9112, 2.2: a recipient may take a bare newline as the end of a line.
        let text = if whole { text.strip_suffix(b"\r").unwrap_or(text) } else { text };
        HeadLine { text, whole }
    }

    pub(super) fn is_empty(self) -> bool {
        self.text.is_empty() && self.whole
    }

    /// The name of a field, and where its value starts.
    pub(super) fn name(self) -> Result<(&'a [u8], usize), Malformed> {
        let colon = self.text.iter().position(|byte| *byte == b':').ok_or(Malformed::Field)?;
        let name = &self.text[..colon];
        // White space before the colon, or a line that continues the one before, is a way to smuggle fields.
        let bad = |byte: &u8| *byte <= b' ' || *byte >= 0x7f;
        if name.is_empty() || name.iter().any(bad) {
            return Err(Malformed::Field);
        }
        Ok((name, colon + 1))
    }

    /// The value of a field that decides where the response ends.
    fn value(self, start: usize) -> Result<&'a [u8], Malformed> {
        if !self.whole {
            return Err(Malformed::LongField);
        }
        Ok(self.text[start..].trim_ascii())
    }

    /// The size at the start of a chunk; extensions behind it are skipped.
    pub(super) fn chunk_size(self) -> Result<u64, Malformed> {
        let end = self.text.iter().position(|byte| *byte == b';');
        if end.is_none() && !self.whole {
            return Err(Malformed::Chunk);
        }
        let digits = self.text[..end.unwrap_or(self.text.len())].trim_ascii_end();
        // Fifteen digits are a petabyte of petabytes; more would only be there to overflow.
        if digits.is_empty() || digits.len() > 15 {
            return Err(Malformed::Chunk);
        }
        digits.iter().try_fold(0_u64, |size, byte| {
            let digit = char::from(*byte).to_digit(16).ok_or(Malformed::Chunk)?;
            Ok(size << 4 | u64::from(digit))
        })
    }
}

/// What of a head matters here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) length: Option<u64>,
    pub(super) chunked: bool,
    /// HTTP/1.1 and later keep a connection by default; 1.0 closes it by default.
    persistent: bool,
    close: bool,
    /// A transfer coding was named: the length does not count (RFC 9112, 6.3).
    coded: bool,
}

impl Head {
    pub(super) fn from_status_line(line: HeadLine<'_>) -> Result<Head, Malformed> {
        let rest = line.text.strip_prefix(b"HTTP/1.").ok_or(Malformed::StatusLine)?;
        let [minor, b' ', a, b, c, reason @ ..] = rest else {
            return Err(Malformed::StatusLine);
        };
        let digits = [minor, a, b, c].iter().all(|byte| byte.is_ascii_digit());
        if !digits || *a == b'0' || reason.first().is_some_and(|byte| *byte != b' ') {
            return Err(Malformed::StatusLine);
        }
        let digit = |byte: &u8| u16::from(byte - b'0');
        let status = digit(a) * 100 + digit(b) * 10 + digit(c);
        Ok(Head { status, persistent: *minor >= b'1', ..Head::default() })
    }

    pub(super) fn field(&mut self, line: HeadLine<'_>) -> Result<(), Malformed> {
        let (name, start) = line.name()?;
        // Lengths first: they distinguish nearly all fields without comparing a letter.
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(line.value(start)?),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(line.value(start)?)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding(line.value(start)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// A length together with a transfer coding, or no length at all, leaves the connection unusable.
    pub(super) fn keep_alive(&self) -> bool {
        self.persistent && !self.close
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.persistent = true;
            }
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let text = str::from_utf8(value).map_err(|_| Malformed::Length)?;
        // `parse` alone would take a plus sign.
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Malformed::Length);
        }
        let length = text.parse().map_err(|_| Malformed::Length)?;
        if self.coded {
            self.close = true;
        } else if self.length.replace(length).is_some_and(|before| before != length) {
            return Err(Malformed::Length);
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) {
        if self.length.take().is_some() {
            self.close = true;
        }
        self.coded = true;
        let last = value.rsplit(|byte| *byte == b',').next().unwrap_or(value);
        self.chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
    }
}

//! Answers, made once and sent many times.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::date::{DATE_BYTES, http_date};

/// The largest body in bytes.
pub const BODY_BYTES_MAX: u32 = 1_048_576;

/// Different answers that are kept. A client that asks for every size must not fill the memory.
const KEPT_MAX: usize = 32;

/// What is answered with 200, by size of the body.
#[derive(Debug)]
pub(super) struct Answers {
    default_bytes: u32,
    kept: HashMap<Key, Answer>,
    /// Seconds since 1970.
    now_s: u64,
    started_s: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    body_bytes: u32,
    keep_alive: bool,
}

#[derive(Debug)]
struct Answer {
    bytes: Vec<u8>,
    head_bytes: usize,
    date_at: usize,
    date_s: u64,
}

impl Answers {
    pub(super) fn new(default_bytes: u32) -> Answers {
        let now_s = unix_s();
        Answers { default_bytes, kept: HashMap::new(), now_s, started_s: now_s }
    }

    /// Looks at the calendar; to be called now and then.
    pub(super) fn tick(&mut self) {
        self.now_s = unix_s();
    }

    /// The size that a path stands for: `None` if it stands for nothing.
    pub(super) fn body_bytes(&self, path: &str) -> Option<u32> {
        match path.strip_prefix('/')? {
            "" => Some(self.default_bytes),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|bytes| *bytes <= BODY_BYTES_MAX)
            }
            _ => None,
        }
    }

    /// The whole answer, or its head alone.
    pub(super) fn ok(&mut self, body_bytes: u32, keep_alive: bool, with_body: bool) -> &[u8] {
        let key = Key { body_bytes, keep_alive };
        if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(&key) {
            self.kept.clear();
        }
        let (now_s, started_s) = (self.now_s, self.started_s);
        let answer = self.kept.entry(key).or_insert_with(|| Answer::new(key, now_s, started_s));
        answer.date(now_s);
        if with_body { &answer.bytes } else { &answer.bytes[..answer.head_bytes] }
    }

    /// An answer that is no file: a status line, and the end of the connection if that has to be.
    pub(super) fn refusal(&self, status: u16, keep_alive: bool) -> Vec<u8> {
        let reason = match status {
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            505 => "HTTP Version Not Supported",
            _ => "Bad Request",
        };
        let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let date = http_date(self.now_s);
        let connection = connection(keep_alive);
        format!(
            "HTTP/1.1 {status} {reason}\r\nServer: hostgap\r\nDate: {date}\r\n{allow}\
             Content-Length: 0\r\nConnection: {connection}\r\n\r\n"
        )
        .into_bytes()
    }
}

impl Answer {
    /// The fields are those of nginx for a static file, in its order, so that as much goes over the wire.
    fn new(key: Key, now_s: u64, started_s: u64) -> Answer {
        let before = "HTTP/1.1 200 OK\r\nServer: hostgap\r\nDate: ";
        let head = format!(
            "{before}{date}\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\
             Last-Modified: {modified}\r\nConnection: {connection}\r\nETag: \"{started_s:x}-{size:x}\"\r\n\
             Accept-Ranges: none\r\n\r\n",
            date = http_date(now_s),
            size = key.body_bytes,
            modified = http_date(started_s),
            connection = connection(key.keep_alive),
        );
        let head_bytes = head.len();
        let mut bytes = head.into_bytes();
        bytes.resize(head_bytes + key.body_bytes as usize, b'x');
        Answer { bytes, head_bytes, date_at: before.len(), date_s: now_s }
    }

    fn date(&mut self, now_s: u64) {
        if self.date_s != now_s {
            self.date_s = now_s;
            let date = http_date(now_s);
            self.bytes[self.date_at..self.date_at + DATE_BYTES].copy_from_slice(date.as_bytes());
        }
    }
}

fn connection(keep_alive: bool) -> &'static str {
    if keep_alive { "keep-alive" } else { "close" }
}

/// A calendar before 1970 is none.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_sizes() {
        let answers = Answers::new(100);
        assert_eq!(answers.body_bytes("/"), Some(100));
        assert_eq!(answers.body_bytes("/4096"), Some(4096));
        assert_eq!(answers.body_bytes("/0"), Some(0));
        assert_eq!(answers.body_bytes("/1048576"), Some(BODY_BYTES_MAX));
        assert_eq!(answers.body_bytes("/1048577"), None);
        assert_eq!(answers.body_bytes("/+1"), None);
        assert_eq!(answers.body_bytes("/x"), None);
        assert_eq!(answers.body_bytes("*"), None);
    }

    #[test]
    fn an_answer_weighs_as_much_as_that_of_nginx() {
        let mut answers = Answers::new(100);
        let length = answers.ok(100, true, true).len();
        assert!((335..=365).contains(&length), "{length}");
        assert_eq!(answers.ok(100, true, false).len(), length - 100);
    }

    #[test]
    fn the_date_goes_on_and_nothing_else() {
        let mut answers = Answers::new(1);
        answers.now_s = 784_111_777;
        let before = String::from_utf8(answers.ok(1, true, true).to_vec()).unwrap();
        answers.now_s += 1;
        let after = String::from_utf8(answers.ok(1, true, true).to_vec()).unwrap();
        assert_eq!(before.replacen("08:49:37", "08:49:38", 1), after);
    }

    #[test]
    fn memory_has_a_limit() {
        let mut answers = Answers::new(1);
        for size in 0..1000 {
            answers.ok(size, true, true);
        }
        assert!(answers.kept.len() <= KEPT_MAX);
    }
}

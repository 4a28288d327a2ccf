//! Answers, made once and sent many times.

use rustix::time::{ClockId, clock_gettime};

use super::date::{DATE_BYTES, http_date};

/// The largest body in bytes.
pub const BODY_BYTES_MAX: u32 = 1_048_576;

/// Different answers that are kept. A client that asks for every size must not fill the memory.
const KEPT_MAX: usize = 32;

/// The kinds of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// Status 200, and a body of a size, or its head alone.
    Page { body_bytes: u32, with_body: bool, keep_alive: bool },
    /// Another status, without a body.
    Refusal { status: u16, keep_alive: bool },
    /// Bytes, on a connection that speaks no HTTP.
    Raw { bytes: u32 },
}

/// The answers of one thread.
#[derive(Debug)]
pub(super) struct Answers {
    default_bytes: u32,
    /// There are few, and most runs ask for one: a map would cost more than it finds.
    kept: Vec<(Key, Answer)>,
    /// Bytes for raw answers, as long as the longest of them.
    raw: Vec<u8>,
    /// The date in answers, in seconds since 1970.
    now_s: u64,
    started_s: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub(super) fn new(default_bytes: u32, raw_bytes_max: u32) -> Answers {
        let now_s = unix_s();
        let raw = vec![b'x'; raw_bytes_max as usize];
        Answers { default_bytes, kept: Vec::new(), raw, now_s, started_s: now_s }
    }

    /// Updates the date in answers; to be called regularly.
    pub(super) fn tick(&mut self) {
        self.now_s = unix_s();
    }

    /// The body size that a path requests; `None` if the path is not found.
    pub(super) fn body_bytes(&self, path: &str) -> Option<u32> {
        match path.strip_prefix('/')? {
            "" => Some(self.default_bytes),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|bytes| *bytes <= BODY_BYTES_MAX)
            }
            _ => None,
        }
    }

    /// Appends an answer to the output.
    pub(super) fn write(&mut self, reply: Reply, output: &mut Vec<u8>) {
        match reply {
            Reply::Page { body_bytes, with_body, keep_alive } => {
                output.extend_from_slice(self.page(Key { body_bytes, keep_alive }, with_body));
            }
            Reply::Refusal { status, keep_alive } => {
                output.extend_from_slice(self.refusal(status, keep_alive).as_bytes());
            }
            Reply::Raw { bytes } => output.extend_from_slice(&self.raw[..bytes as usize]),
        }
    }

    fn page(&mut self, key: Key, with_body: bool) -> &[u8] {
        let index = self.kept.iter().position(|(kept, _)| *kept == key).unwrap_or_else(|| {
            if self.kept.len() >= KEPT_MAX {
                self.kept.clear();
            }
            self.kept.push((key, Answer::new(key, self.now_s, self.started_s)));
            self.kept.len() - 1
        });
        let (_, answer) = &mut self.kept[index];
        answer.date(self.now_s);
        if with_body { &answer.bytes } else { &answer.bytes[..answer.head_bytes] }
    }

    /// An answer that is no file: a status line, and the end of the connection if that has to be.
    fn refusal(&self, status: u16, keep_alive: bool) -> String {
        let reason = match status {
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            503 => "Service Unavailable",
            505 => "HTTP Version Not Supported",
            _ => "Bad Request",
        };
        let allow = if status == 405 { "Allow: GET, HEAD, POST, PUT, PATCH, DELETE\r\n" } else { "" };
        let date = http_date(self.now_s);
        let connection = connection(keep_alive);
        format!(
            "HTTP/1.1 {status} {reason}\r\nServer: hostgap\r\nDate: {date}\r\n{allow}\
             Content-Length: 0\r\nConnection: {connection}\r\n\r\n"
        )
    }
}

impl Reply {
    pub(super) fn keep_alive(self) -> bool {
        match self {
            Reply::Page { keep_alive, .. } | Reply::Refusal { keep_alive, .. } => keep_alive,
            Reply::Raw { .. } => true,
        }
    }

    /// The replacement for this answer when an error is injected. Raw bytes have no status.
    pub(super) fn as_error(self) -> Reply {
        match self {
            Reply::Page { keep_alive, .. } | Reply::Refusal { keep_alive, .. } => {
                Reply::Refusal { status: 503, keep_alive }
            }
            Reply::Raw { .. } => self,
        }
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

/// The time of the kernel's last tick, which is exact enough for a date and avoids reading the hardware's clock. Times
/// before 1970 count as 0.
fn unix_s() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_sizes() {
        let answers = Answers::new(100, 1);
        assert_eq!(answers.body_bytes("/"), Some(100));
        assert_eq!(answers.body_bytes("/4096"), Some(4096));
        assert_eq!(answers.body_bytes("/0"), Some(0));
        assert_eq!(answers.body_bytes("/1048576"), Some(BODY_BYTES_MAX));
        assert_eq!(answers.body_bytes("/1048577"), None);
        assert_eq!(answers.body_bytes("/+1"), None);
        assert_eq!(answers.body_bytes("/x"), None);
        assert_eq!(answers.body_bytes("*"), None);
    }

    fn page(answers: &mut Answers, body_bytes: u32, with_body: bool) -> Vec<u8> {
        let mut output = Vec::new();
        answers.write(Reply::Page { body_bytes, with_body, keep_alive: true }, &mut output);
        output
    }

    #[test]
    fn an_answer_weighs_as_much_as_that_of_nginx() {
        let mut answers = Answers::new(100, 1);
        let length = page(&mut answers, 100, true).len();
        assert!((335..=365).contains(&length), "{length}");
        assert_eq!(page(&mut answers, 100, false).len(), length - 100);
    }

    #[test]
    fn the_date_goes_on_and_nothing_else() {
        let mut answers = Answers::new(1, 1);
        answers.now_s = 784_111_777;
        let before = String::from_utf8(page(&mut answers, 1, true)).unwrap();
        answers.now_s += 1;
        let after = String::from_utf8(page(&mut answers, 1, true)).unwrap();
        assert_eq!(before.replacen("08:49:37", "08:49:38", 1), after);
    }

    #[test]
    fn memory_has_a_limit() {
        let mut answers = Answers::new(1, 1);
        for size in 0..1000 {
            page(&mut answers, size, true);
        }
        assert!(answers.kept.len() <= KEPT_MAX);
    }
}

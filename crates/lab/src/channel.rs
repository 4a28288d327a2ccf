//! Lines to and from the process on the other machine.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How often either side says that it is there, by an empty line. It takes one small packet.
const SAYS: Duration = Duration::from_secs(5);
/// After so long without a word the other side is gone, or cut off for good.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long the process may take to end after its input has: it undoes what it has built.
const ENDING_MAX: Duration = Duration::from_secs(60);
/// How many of the last lines of its stderr an error quotes.
const STDERR_LINES_MAX: usize = 4;

/// What asks a process on another machine, and hears its answers.
pub(crate) trait Conversation: std::fmt::Debug + Send {
    /// Sends a line.
    ///
    /// # Errors
    /// Why the other side cannot be asked, in words.
    fn say(&self, line: &str) -> Result<(), String>;

    /// The next line, within a time.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn hear(&self, limit: Duration) -> Result<String, String>;

    /// Lets the process end and waits for that, so that what it has built is undone.
    ///
    /// # Errors
    /// It has not ended, or failed; in words.
    fn end(&mut self) -> Result<(), String>;

    /// Ends a process of this machine at once, where the other side has nothing to undo any more.
    fn cut(&mut self) {}
}

/// How long an answer may take of another side that says meanwhile that it is there: it builds, starts servers and
/// undoes in seconds.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(120);

/// The words for it.
pub(crate) fn silent(limit: Duration) -> String {
    format!("it has not answered for {} s", limit.as_secs())
}

/// A process that is asked and answers by lines.
#[derive(Debug)]
pub(crate) struct Channel {
    child: Child,
    /// `None`: its input has ended.
    to: Option<Arc<Mutex<ChildStdin>>>,
    from: Receiver<io::Result<String>>,
    stderr_lines: Arc<Mutex<VecDeque<String>>>,
    /// Dropped, it ends the thread that says that this side is there.
    _alive: Sender<()>,
}

impl Channel {
    /// Starts a command in a process group of its own, so that ^C in a terminal reaches this process alone.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(command: &mut Command) -> io::Result<Channel> {
        use std::os::unix::process::CommandExt;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let to = Arc::new(Mutex::new(child.stdin.take().expect("asked for above")));
        let from = lines(child.stdout.take().expect("asked for above"))?;
        let stderr_lines = Arc::new(Mutex::new(VecDeque::new()));
        listen(child.stderr.take().expect("asked for above"), Arc::clone(&stderr_lines))?;
        let alive = keep_saying(&to)?;
        Ok(Channel { child, to: Some(to), from, stderr_lines, _alive: alive })
    }

    /// The way to it for another thread, which does not keep its input open.
    pub(crate) fn voice(&self) -> Voice {
        Voice(self.to.as_ref().map(Arc::downgrade).unwrap_or_default())
    }

    /// The next line, or `None` if none has come within a time.
    ///
    /// # Errors
    /// There will be none; why, in words.
    pub(crate) fn next(&self, within: Duration) -> Result<Option<String>, String> {
        match self.from.recv_timeout(within) {
            Ok(line) => line.map(Some).map_err(|error| error.to_string()),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.lost()),
        }
    }

    /// Ends its input, and waits until it has ended.
    ///
    /// # Errors
    /// It has not, in words.
    pub(crate) fn ended(&mut self) -> Result<ExitStatus, String> {
        self.to = None;
        let deadline = Instant::now() + ENDING_MAX;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error.to_string()),
            }
        }
        // Its end goes on there; here nothing waits for it any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
        Err(format!("it has not ended within {} s", ENDING_MAX.as_secs()))
    }

    /// What it said last on stderr, or that it said nothing.
    pub(crate) fn lost(&self) -> String {
        // What it says at its end may come a moment after its output has closed.
        thread::sleep(Duration::from_millis(100));
        let stderr_lines: Vec<String> = held(&self.stderr_lines).iter().cloned().collect();
        if stderr_lines.is_empty() { "the connection has ended".to_owned() } else { stderr_lines.join("; ") }
    }
}

impl Conversation for Channel {
    fn say(&self, line: &str) -> Result<(), String> {
        let Some(to) = &self.to else { return Err(self.lost()) };
        let sent = writeln!(held(to), "{line}");
        sent.map_err(|_| self.lost())
    }

    fn hear(&self, limit: Duration) -> Result<String, String> {
        self.next(limit)?.ok_or_else(|| silent(limit))
    }

    fn end(&mut self) -> Result<(), String> {
        if self.ended()?.success() { Ok(()) } else { Err(self.lost()) }
    }

    fn cut(&mut self) {
        // Once it was waited for, its number may be a stranger's.
        if self.to.is_none() {
            return;
        }
        // With what it has started; it leads a group of its own. Its input ends after it, so that it
        // begins nothing by that.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        self.to = None;
    }
}

/// Says lines to a process that another thread hears.
pub(crate) struct Voice(Weak<Mutex<ChildStdin>>);

impl Voice {
    /// Whether it could be said.
    pub(crate) fn say(&self, line: &str) -> bool {
        self.0.upgrade().is_some_and(|to| writeln!(held(&to), "{line}").is_ok())
    }
}

/// A conversation that cannot go on, and why.
#[derive(Debug)]
pub(crate) struct Lost(pub(crate) String);

impl Conversation for Lost {
    fn say(&self, _line: &str) -> Result<(), String> {
        Err(self.0.clone())
    }

    fn hear(&self, _limit: Duration) -> Result<String, String> {
        Err(self.0.clone())
    }

    fn end(&mut self) -> Result<(), String> {
        Err(self.0.clone())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.to.is_some() {
            // Only on an error, whose own message matters more.
            let _ = self.ended();
        }
    }
}

/// What a thread that panicked left is as good as before: lines are whole.
pub(crate) fn held<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lines as they come, read by a thread of their own.
pub(crate) fn lines(from: impl Read + Send + 'static) -> io::Result<Receiver<io::Result<String>>> {
    let (send, receive) = mpsc::sync_channel(LINES_MAX);
    let read = move || {
        for line in Bounded(BufReader::new(from)) {
            if send.send(line).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("lines".to_owned()).spawn(read)?;
    Ok(receive)
}

/// Lines that wait to be taken. A sender of more waits.
const LINES_MAX: usize = 1024;
/// The longest line, in bytes: a round of many candidates with all histograms takes a hundredth of it.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Lines of a length that fits into memory, whatever the other side sends.
struct Bounded<R>(R);

impl<R: BufRead> Iterator for Bounded<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<io::Result<String>> {
        let mut line = Vec::new();
        match self.0.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) if line.last() == Some(&b'\n') => line.pop(),
            Ok(bytes) if bytes as u64 == LINE_BYTES_MAX => {
                return Some(Err(io::Error::other("it said a line that is too long")));
            }
            // The last one, without an end.
            Ok(_) => None,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(String::from_utf8_lossy(&line).into_owned()))
    }
}

/// Keeps the last lines of stderr.
fn listen(from: impl Read + Send + 'static, stderr_lines: Arc<Mutex<VecDeque<String>>>) -> io::Result<()> {
    let read = move || {
        for line in Bounded(BufReader::new(from)).map_while(Result::ok).filter(|line| !line.is_empty()) {
            let mut stderr_lines = held(&stderr_lines);
            let line = line.trim_start_matches("hostgap: ").trim_start_matches("could not ");
            // It goes to a terminal.
            stderr_lines.push_back(line.replace(char::is_control, " "));
            if stderr_lines.len() > STDERR_LINES_MAX {
                stderr_lines.pop_front();
            }
        }
    };
    thread::Builder::new().name("stderr".to_owned()).spawn(read).map(drop)
}

/// Where a process that is asked answers: lines of two threads stay whole.
pub type Output = Arc<Mutex<dyn Write + Send>>;

/// Sends an empty line now and then, until the sender that is returned is dropped.
pub(crate) fn keep_saying<W: Write + Send + ?Sized + 'static>(to: &Arc<Mutex<W>>) -> io::Result<Sender<()>> {
    let (alive, ended) = mpsc::channel();
    let to = Arc::downgrade(to);
    let say = move || {
        while ended.recv_timeout(SAYS) == Err(RecvTimeoutError::Timeout) {
            let Some(to) = to.upgrade() else { break };
            // That the other side is gone is seen when it is asked, or says nothing.
            let mut to = held(&to);
            let _ = writeln!(to).and_then(|()| to.flush());
        }
    };
    thread::Builder::new().name("still here".to_owned()).spawn(say)?;
    Ok(alive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Channel {
        Channel::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn a_line_is_answered_by_a_line_and_the_end_of_lines_ends_it() {
        let mut channel = shell("while read line; do [ -z \"$line\" ] || echo \"got $line\"; done");
        for question in ["one", "two"] {
            channel.say(question).unwrap();
            assert_eq!(channel.hear(ANSWER_MAX), Ok(format!("got {question}")));
        }
        assert_eq!(channel.next(Duration::ZERO), Ok(None));
        assert_eq!(channel.end(), Ok(()));
        assert!(channel.say("three").is_err());
    }

    #[test]
    fn what_it_says_last_is_why_there_is_no_answer() {
        let mut channel = shell("printf 'hostgap: could not do it\\033[1m\\n' >&2; exit 3");
        assert_eq!(channel.hear(ANSWER_MAX), Err("do it [1m".to_owned()));
        assert_eq!(channel.end(), Err("do it [1m".to_owned()));
        // It has been killed, or its end was not heard of.
        assert_eq!(shell("kill -9 $$").hear(ANSWER_MAX), Err("the connection has ended".to_owned()));
    }

    #[test]
    fn what_is_no_text_is_read_on() {
        let channel = shell("printf '\\377\\n\\n'; printf 'no end'");
        let heard: Vec<String> = (0..3).map(|_| channel.hear(ANSWER_MAX).unwrap()).collect();
        assert_eq!(heard, ["\u{fffd}", "", "no end"]);
        assert!(channel.hear(ANSWER_MAX).is_err());
    }
}

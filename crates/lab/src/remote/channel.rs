//! Lines to and from the process on the other machine.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often this side says that it is there. A line takes one small packet.
const SAYS: Duration = Duration::from_secs(5);
/// How long the other side may be silent in an answer: it builds, starts servers and undoes in seconds.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// How long the process may take to end after its input has: it undoes what it has built.
const ENDING_MAX: Duration = Duration::from_secs(60);
/// How many of the last lines of its stderr an error quotes.
const SAID_LINES: usize = 4;

/// A process that is asked and answers by lines.
#[derive(Debug)]
pub(super) struct Channel {
    child: Child,
    /// `None`: its input has ended.
    to: Option<Arc<Mutex<ChildStdin>>>,
    from: Receiver<io::Result<String>>,
    said: Arc<Mutex<VecDeque<String>>>,
    /// Dropped, it ends the thread that says that this side is there.
    _alive: Sender<()>,
}

impl Channel {
    /// Starts a command in a process group of its own, so that ^C in a terminal reaches this process alone.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(command: &mut Command) -> io::Result<Channel> {
        use std::os::unix::process::CommandExt;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let to = Arc::new(Mutex::new(child.stdin.take().expect("asked for above")));
        let from = lines(child.stdout.take().expect("asked for above"))?;
        let said = Arc::new(Mutex::new(VecDeque::new()));
        listen(child.stderr.take().expect("asked for above"), Arc::clone(&said))?;
        let alive = keep_saying(&to)?;
        Ok(Channel { child, to: Some(to), from, said, _alive: alive })
    }

    /// Sends a line.
    ///
    /// # Errors
    /// Why the other side cannot be asked, in words.
    pub(super) fn say(&self, line: &str) -> Result<(), String> {
        let Some(to) = &self.to else { return Err(self.lost()) };
        let sent = writeln!(held(to), "{line}");
        sent.map_err(|_| self.lost())
    }

    /// The next line.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(super) fn hear(&self) -> Result<String, String> {
        match self.from.recv_timeout(SILENCE_MAX) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(error)) => Err(error.to_string()),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("it has not answered for {} s", SILENCE_MAX.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.lost()),
        }
    }

    /// Ends its input and waits until it has ended, so that what it built is undone.
    ///
    /// # Errors
    /// It has not, or failed; in words.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.to = None;
        let deadline = Instant::now() + ENDING_MAX;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(_)) => return Err(self.lost()),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                Ok(None) => {
                    // Its end goes on there; here nobody waits for it any more.
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return Err(format!("it has not ended within {} s", ENDING_MAX.as_secs()));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// What it said last on stderr, or that it said nothing.
    fn lost(&self) -> String {
        // What it says at its end may come a moment after its output has closed.
        thread::sleep(Duration::from_millis(100));
        let said: Vec<String> = held(&self.said).iter().cloned().collect();
        if said.is_empty() { "the connection has ended".to_owned() } else { said.join("; ") }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.to.is_some() {
            // Only on an error, whose own message matters more.
            let _ = self.end();
        }
    }
}

/// What a thread that panicked left is as good as before: lines are whole.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lines as they come, read by a thread of their own.
pub(super) fn lines(from: impl Read + Send + 'static) -> io::Result<Receiver<io::Result<String>>> {
    let (send, receive) = mpsc::channel();
    let read = move || {
        for line in BufReader::new(from).lines() {
            if send.send(line).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("lines".to_owned()).spawn(read)?;
    Ok(receive)
}

/// Keeps the last lines of stderr.
fn listen(from: impl Read + Send + 'static, said: Arc<Mutex<VecDeque<String>>>) -> io::Result<()> {
    let read = move || {
        for line in BufReader::new(from).lines().map_while(Result::ok).filter(|line| !line.is_empty()) {
            let mut said = held(&said);
            said.push_back(line.trim_start_matches("hostgap: ").to_owned());
            if said.len() > SAID_LINES {
                said.pop_front();
            }
        }
    };
    thread::Builder::new().name("stderr".to_owned()).spawn(read).map(drop)
}

/// Sends an empty line now and then, until the sender that is returned is dropped.
fn keep_saying(to: &Arc<Mutex<ChildStdin>>) -> io::Result<Sender<()>> {
    let (alive, ended) = mpsc::channel();
    let to = Arc::downgrade(to);
    let say = move || {
        while ended.recv_timeout(SAYS) == Err(RecvTimeoutError::Timeout) {
            let Some(to) = to.upgrade() else { break };
            // That the other side is gone is seen when it is asked.
            let _ = writeln!(held(&to));
        }
    };
    thread::Builder::new().name("still here".to_owned()).spawn(say)?;
    Ok(alive)
}

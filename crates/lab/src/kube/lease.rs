//! The process in the lease's pod: while its input lives, so does the race.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A side that says nothing for so long is gone: it says every five seconds that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// So long the other side may take to find this one.
const FIRST_WORD_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether to stop.
const LOOKS: Duration = Duration::from_millis(200);

/// Answers `held` to `hold`, and waits until the input ends, is silent for 30 s, or `stop` is set.
pub fn wait_for_the_end(input: impl Read + Send + 'static, output: &mut dyn Write, stop: &AtomicBool) {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(input).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let (mut heard, mut limit) = (Instant::now(), FIRST_WORD_MAX);
    while !stop.load(Ordering::Relaxed) && heard.elapsed() < limit {
        match lines.recv_timeout(LOOKS) {
            Ok(line) => {
                (heard, limit) = (Instant::now(), SILENCE_MAX);
                if line.trim() == "hold" && writeln!(output, "held").and_then(|()| output.flush()).is_err() {
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn it_holds_until_its_input_ends() {
        let (read, mut write) = std::io::pipe().unwrap();
        let waiting = thread::spawn(move || {
            let mut said = Vec::new();
            wait_for_the_end(read, &mut said, &AtomicBool::new(false));
            said
        });
        write.write_all(b"hold\n\n").unwrap();
        assert!(!waiting.is_finished());
        drop(write);
        assert_eq!(waiting.join().unwrap(), b"held\n");
    }

    #[test]
    fn it_ends_when_it_is_stopped() {
        let (read, _write) = std::io::pipe().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let waiting = thread::spawn(move || wait_for_the_end(read, &mut std::io::sink(), &ends));
        stop.store(true, Ordering::Relaxed);
        waiting.join().unwrap();
    }
}

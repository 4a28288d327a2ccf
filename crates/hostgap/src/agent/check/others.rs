//! The other nodes' rows, asked of their agents over HTTP.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ::agent::check::{Row, SCHEMA};
use ::agent::status::PeerStatus;

/// How long an agent may take to be there.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a node may take in all: for this check, and for one before it that another caller asked for.
const ANSWER: Duration = Duration::from_secs(60);
/// So many agents are asked at the same time: each then sends requests to all nodes.
const AT_ONCE: usize = 32;
/// A row of some thousand nodes has this size at most.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What agents have answered, by their nodes' names: their row, or why there is none.
pub(super) type Answers = BTreeMap<String, Result<Row, String>>;

/// Asks the agents of these nodes for their rows of a network, and waits for all.
pub(super) fn ask(peers: &BTreeMap<String, PeerStatus>, port: u16, network: &str) -> Answers {
    let left = Mutex::new(peers.iter());
    let work = || {
        let mut answers = Answers::new();
        while let Some((name, peer)) = left.lock().ok().and_then(|mut left| left.next()) {
            answers.insert(name.clone(), row_of(&peer.public, port, network));
        }
        answers
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..peers.len().min(AT_ONCE)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("nothing in it panics")).collect()
    })
}

/// The row of a node, at the first of its addresses where an agent answers.
fn row_of(public: &[String], port: u16, network: &str) -> Result<Row, String> {
    let until = Instant::now() + ANSWER;
    let mut why = "its lease is refused, so its address is not known".to_owned();
    for address in public.iter().filter_map(|text| text.parse::<IpAddr>().ok()) {
        match get(SocketAddr::new(address, port), network, until) {
            Ok(row) => return Ok(row),
            Err(error) => why = format!("{}: {error}", SocketAddr::new(address, port)),
        }
    }
    Err(why)
}

fn get(at: SocketAddr, network: &str, until: Instant) -> Result<Row, String> {
    let answer = request(at, until).map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("its answer is not HTTP")?;
    let row: Row = match head.split(' ').nth(1) {
        Some("200") => {
            serde_json::from_str(body).map_err(|error| format!("its answer is no row: {error}"))?
        }
        Some("404") => return Err("it does not know /check: it is older than this program".to_owned()),
        _ => return Err(body.trim_end().to_owned()),
    };
    if row.schema != SCHEMA {
        return Err(format!("its row has version {}, and this program reads version {SCHEMA}", row.schema));
    }
    if row.network != network {
        // A node has an agent for each of its networks, at ports of their own.
        return Err(format!("the agent there is that of the network {}", row.network));
    }
    Ok(row)
}

fn request(at: SocketAddr, until: Instant) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, CONNECT.min(left(until)?))?;
    stream.set_write_timeout(Some(CONNECT))?;
    // HTTP/1.0: the answer ends with the connection, and is not in chunks.
    write!(stream, "GET /check HTTP/1.0\r\nHost: {at}\r\n\r\n")?;
    let mut stream = stream.take(ANSWER_BYTES_MAX);
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        // A limit for each read alone would have no end where the answer comes byte by byte.
        stream.get_ref().set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => answer.extend(piece.iter().take(bytes)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(answer).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// The time that is left, which is not zero.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("no answer in {} s", ANSWER.as_secs()))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What answers one caller by writing to its connection.
    fn server(answer: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || answer(listener.accept().unwrap().0));
        at
    }

    fn answering(row: &Row) -> SocketAddr {
        let body = serde_json::to_string(row).unwrap();
        server(move |mut caller| {
            // Where a part of it is left unread, the end of the connection is a reset.
            let lines = BufReader::new(&caller).lines().map_while(Result::ok);
            assert!(lines.take_while(|line| !line.is_empty()).count() > 1);
            write!(caller, "HTTP/1.0 200 OK\r\n\r\n{body}").unwrap();
        })
    }

    #[test]
    fn the_row_of_another_network_is_none_of_this_one() {
        let row = Row { schema: SCHEMA, network: "pods".to_owned(), ..Row::default() };
        let until = Instant::now() + ANSWER;
        assert_eq!(get(answering(&row), "pods", until), Ok(row.clone()));
        let said = get(answering(&row), "storage", until).unwrap_err();
        assert_eq!(said, "the agent there is that of the network pods");
        let newer = Row { schema: SCHEMA + 1, ..row };
        let said = get(answering(&newer), "pods", until).unwrap_err();
        assert_eq!(said, "its row has version 2, and this program reads version 1");
    }

    #[test]
    fn an_answer_that_trickles_is_not_waited_for_without_end() {
        let at = server(|mut caller| {
            while caller.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let error = request(at, Instant::now() + Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
}

//! The other nodes' rows, asked of their agents over HTTP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use ::agent::check::Row;
use ::agent::status::PeerStatus;

/// How long an agent may take to be there.
const CONNECT: Duration = Duration::from_secs(3);
/// How long it may take for this check, and for one before it that another caller asked for.
const ANSWER: Duration = Duration::from_secs(60);
/// So many agents are asked at the same time: each then sends requests to all nodes.
const AT_ONCE: usize = 32;
/// A row of some thousand nodes has this size at most.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What agents have answered, by their nodes' names: their row, or why there is none.
pub(super) type Answers = BTreeMap<String, Result<Row, String>>;

/// Asks the agents of these nodes, and waits for all.
pub(super) fn ask(peers: &BTreeMap<String, PeerStatus>, port: u16) -> Answers {
    let left = Mutex::new(peers.iter());
    let work = || {
        let mut answers = Answers::new();
        while let Some((name, peer)) = left.lock().ok().and_then(|mut left| left.next()) {
            answers.insert(name.clone(), row_of(&peer.public, port));
        }
        answers
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..peers.len().min(AT_ONCE)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("nothing in it panics")).collect()
    })
}

/// The row of a node, at the first of its addresses where an agent answers.
fn row_of(public: &[String], port: u16) -> Result<Row, String> {
    let mut why = "its lease is refused, so its address is not known".to_owned();
    for address in public.iter().filter_map(|text| text.parse::<IpAddr>().ok()) {
        match get(SocketAddr::new(address, port)) {
            Ok(row) => return Ok(row),
            Err(error) => why = format!("{}: {error}", SocketAddr::new(address, port)),
        }
    }
    Err(why)
}

fn get(at: SocketAddr) -> Result<Row, String> {
    let answer = request(at).map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("its answer is not HTTP")?;
    match head.split(' ').nth(1) {
        Some("200") => serde_json::from_str(body).map_err(|error| format!("its answer is no row: {error}")),
        Some("404") => Err("it does not know /check: it is older than this program".to_owned()),
        _ => Err(body.trim_end().to_owned()),
    }
}

fn request(at: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, CONNECT)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(CONNECT))?;
    // HTTP/1.0: the answer ends with the connection, and is not in chunks.
    write!(stream, "GET /check HTTP/1.0\r\nHost: {at}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

//! Two pods that talk, without a pause if a test does not ask for one: by UDP, where each lost packet is a lost
//! request, and on one TCP connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::Netns;

/// Longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// After so long it is asked whether the machine has lost what is not answered.
const LATE: Duration = Duration::from_secs(1);
/// More than fits into one packet.
const BLOCK: usize = 5000;
/// How many answers show that packets go both ways.
const SOME: u64 = 100;

/// Requests that go from one pod to another, each when the one before is answered.
pub struct Talk {
    stop: Arc<AtomicBool>,
    answered: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// Between an answer and the next request.
    pause: Duration,
}

impl Talk {
    /// Begins. `to` has the address.
    ///
    /// # Panics
    /// If the pods do not reach each other.
    pub fn begin(from: &Netns, to: &Netns, address: &str) -> Talk {
        Talk::begin_with(Duration::ZERO, from, to, address)
    }

    /// Begins to ask about a thousand times a second, which leaves the CPUs to what goes on for long meanwhile.
    ///
    /// # Panics
    /// As [`Talk::begin`].
    pub fn begin_paced(from: &Netns, to: &Netns, address: &str) -> Talk {
        Talk::begin_with(Duration::from_millis(1), from, to, address)
    }

    fn begin_with(pause: Duration, from: &Netns, to: &Netns, address: &str) -> Talk {
        let address: IpAddr = address.parse().expect("the caller gives an address");
        let mut talk = Talk { stop: Arc::default(), answered: Vec::new(), threads: Vec::new(), pause };
        let (mut connected, answering) = connection(from, to, address).expect("the pods reach each other");
        let (near, far) = datagrams(from, to, address).expect("a test's own pods have sockets");
        talk.threads.push(std::thread::spawn(move || answer_datagrams(&far)));
        talk.ask(move |number| ask_datagram(&near, number));
        talk.threads.push(std::thread::spawn(move || answer_blocks(answering)));
        talk.ask(move |number| {
            let block = [number.to_be_bytes()[7]; BLOCK];
            let mut answer = [0; BLOCK];
            connected.write_all(&block)?;
            connected.read_exact(&mut answer)?;
            same(answer, block)
        });
        talk
    }

    /// Asks in a thread, until it is to stop. The last number makes the thread that answers datagrams stop, too.
    fn ask(&mut self, mut request: impl FnMut(u64) -> io::Result<()> + Send + 'static) {
        let (stop, answered, pause) = (self.stop.clone(), Arc::<AtomicU64>::default(), self.pause);
        self.answered.push(answered.clone());
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                request(answered.load(Ordering::Relaxed))?;
                answered.fetch_add(1, Ordering::Relaxed);
                if !pause.is_zero() {
                    std::thread::sleep(pause);
                }
            }
            request(u64::MAX)
        }));
    }

    /// Waits until more requests of each kind are answered.
    ///
    /// # Panics
    /// If one was not.
    #[track_caller]
    pub fn goes_on(&self) {
        let begun = Instant::now();
        let counts = || self.answered.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<u64>>();
        let before = counts();
        while counts().iter().zip(&before).any(|(now, before)| *now < before + SOME) {
            let has_ended = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!has_ended && begun.elapsed() < PATIENCE, "no answer after {before:?}, {:?}", counts());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it.
    ///
    /// # Panics
    /// If something that was asked was not answered.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let ended = thread.join().expect("a thread that talks returns its errors");
            assert!(ended.is_ok(), "a request was lost: {ended:?}");
        }
    }
}

/// A socket of each pod, the first of which sends to the second.
fn datagrams(from: &Netns, to: &Netns, address: IpAddr) -> io::Result<(UdpSocket, UdpSocket)> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let far = within(to, || UdpSocket::bind((address, 0)))?;
    let near = within(from, || UdpSocket::bind((any, 0)))?;
    near.connect(far.local_addr()?)?;
    near.set_read_timeout(Some(LATE))?;
    far.set_read_timeout(Some(PATIENCE))?;
    Ok((near, far))
}

/// Both ends of a connection. Links that have just come up may lose what a node asks for its neighbours,
/// until it gives up.
fn connection(from: &Netns, to: &Netns, address: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = within(to, || TcpListener::bind((address, 0)))?;
    let peer = listener.local_addr()?;
    let begun = Instant::now();
    let near = loop {
        match within(from, || TcpStream::connect_timeout(&peer, PATIENCE)) {
            Err(error) if error.kind() == ErrorKind::HostUnreachable && begun.elapsed() < PATIENCE => {}
            connected => break connected?,
        }
    };
    near.set_read_timeout(Some(PATIENCE))?;
    Ok((near, listener.accept()?.0))
}

fn within<T>(netns: &Netns, open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    netns.run(open).map_err(io::Error::other)?
}

/// Sends a number, and waits until it comes back. It is sent again only if the machine's CPUs have dropped packets in
/// the first second, of whatever namespace: what others flood the machine with says nothing of the way between the
/// pods. Drops that come later have not taken it.
fn ask_datagram(near: &UdpSocket, number: u64) -> io::Result<()> {
    let begun = Instant::now();
    let mut lost = Some(lost_by_cpus()?);
    near.send(&number.to_be_bytes())?;
    loop {
        let mut answer = [0; 8];
        match near.recv(&mut answer) {
            // An answer to what was sent twice.
            Ok(_) if u64::from_be_bytes(answer) < number => {}
            Ok(_) => return same(answer, number.to_be_bytes()),
            // A socket with a time limit does not go on by itself after a signal (socket(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The answering thread has ended after the last number.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && number == u64::MAX => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let lost_by_now = lost_by_cpus()?;
                if lost.take().is_some_and(|before| before != lost_by_now) {
                    lost = Some(lost_by_now);
                    near.send(&number.to_be_bytes())?;
                } else if begun.elapsed() > PATIENCE {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// What each of the machine's CPUs has dropped since it had too many packets (`net.core.netdev_max_backlog`).
fn lost_by_cpus() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/softnet_stat")?;
    Ok(text.lines().filter_map(|cpu| cpu.split(' ').nth(1)).map(str::to_owned).collect())
}

/// Until the last number comes.
fn answer_datagrams(far: &UdpSocket) -> io::Result<()> {
    let mut request = [0; 8];
    while request != u64::MAX.to_be_bytes() {
        let (_, from) = match far.recv_from(&mut request) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            received => received?,
        };
        far.send_to(&request, from)?;
    }
    Ok(())
}

/// Until the connection ends.
fn answer_blocks(mut far: TcpStream) -> io::Result<()> {
    let mut block = [0; BLOCK];
    loop {
        match far.read_exact(&mut block) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        far.write_all(&block)?;
    }
}

fn same<const N: usize>(answer: [u8; N], request: [u8; N]) -> io::Result<()> {
    if answer == request { Ok(()) } else { Err(io::Error::other("the answer is another one's")) }
}

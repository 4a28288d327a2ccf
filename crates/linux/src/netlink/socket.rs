//! One request, its answers, its errors.

use std::io;
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::netdevice::name_to_index;

use super::Netlink;
use super::answer::{read, split};
use crate::cookie::cookie_of;
use crate::{IfName, Result};

/// The header flag of a dump during which something changed: it may lack entries or name them twice.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// Message types below are netlink's own: acknowledgements, errors, ends of dumps (`NLMSG_MIN_TYPE`).
const FIRST_ANSWER_TYPE: u16 = 16;
/// Bytes of one receive buffer. A dump's messages fill at most 32 KiB (`netlink_dump` in net/netlink/af_netlink.c).
const BUFFER_BYTES: usize = 64 * 1024;
/// How long an interrupted dump is repeated.
const DUMP_PATIENCE: Duration = Duration::from_secs(5);

/// A connected socket of one of netlink's protocols.
#[derive(Debug)]
pub(super) struct Socket {
    socket: netlink_sys::Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// The outcome of a dump.
enum Dump<M> {
    Whole(Vec<M>),
    Interrupted,
}

/// What ends an exchange, beside an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// The first answer: to a question for one thing the kernel has no other.
    Answer,
    /// An acknowledgement, or the end of a dump.
    Acknowledgement,
}

impl Netlink {
    /// Sends a request that changes something and waits for its acknowledgement.
    pub(super) fn change(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        attempted: impl AsRef<str>,
    ) -> Result<()> {
        self.exchange(message, flags | NLM_F_ACK).map(drop).map_err(|error| self.error(attempted, error))
    }

    /// Asks for one thing.
    pub(super) fn get(&self, question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.socket.lock().expect("no exchange panics").get(question)
    }

    /// The index of a link that should be there. `ENODEV` if there is none.
    ///
    /// Unlike a question of rtnetlink it needs no lock of the kernel (net/core/dev_ioctl.c), for which changes of
    /// links, which take milliseconds, make others wait. Where there is no such link the kernel looks for a module of
    /// its name (`dev_load`): [`Netlink::link`] is for links that may be missing.
    pub fn index_of(&self, name: &IfName) -> Result<u32> {
        let socket = self.socket.lock().expect("no exchange panics");
        name_to_index(&socket.socket, name.as_str())
            .map_err(|errno| self.error(format!("find link {name}"), errno.into()))
    }

    /// Requests a full dump, and repeats it if a change interrupted it.
    pub(super) fn dump(
        &self,
        message: &RouteNetlinkMessage,
        attempted: impl AsRef<str>,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let mut socket = self.socket.lock().expect("no exchange panics");
        socket.dump(message).map_err(|error| self.error(attempted, error))
    }

    /// Like `dump`, but the kernel checks the fields of the request's header (Linux 4.20).
    pub(super) fn dump_strictly(
        &self,
        message: &RouteNetlinkMessage,
        attempted: impl AsRef<str>,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let mut socket = self.socket.lock().expect("no exchange panics");
        let strictly = |socket: &mut Socket| {
            socket.socket.set_netlink_get_strict_chk(true)?;
            let answers = socket.dump(message);
            socket.socket.set_netlink_get_strict_chk(false)?;
            answers
        };
        strictly(&mut socket).map_err(|error| self.error(attempted, error))
    }

    pub(super) fn exchange(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.socket.lock().expect("no exchange panics").exchange(message, flags)
    }
}

impl Socket {
    /// A socket of the calling thread's namespace; the protocol is one of `netlink_sys::protocols`.
    pub(super) fn open(protocol: isize) -> io::Result<Socket> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        // Both since Linux 4.12. Errors come with the kernel's words, and without a copy of the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Socket { socket, sequence: 0, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    pub(super) fn netns_cookie(&self) -> io::Result<u64> {
        cookie_of(&self.socket)
    }

    /// Asks for one thing. The answer needs no acknowledgement behind it.
    fn get<M>(&mut self, question: M) -> io::Result<M>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        self.send(question, 0)?;
        let answered = match self.receive(Last::Answer)? {
            Dump::Whole(answers) => answers.into_iter().next(),
            Dump::Interrupted => None,
        };
        answered.ok_or_else(|| io::Error::other("the kernel gave no answer"))
    }

    /// Sends a request, and returns what came before it was acknowledged.
    pub(super) fn exchange<M>(&mut self, message: M, flags: u16) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        self.send(message, flags)?;
        match self.receive(Last::Acknowledgement)? {
            Dump::Whole(answers) => Ok(answers),
            Dump::Interrupted => Err(io::Error::from_raw_os_error(libc::EINTR)),
        }
    }

    /// Requests a full list, and repeats it if a change interrupted it.
    pub(super) fn dump<M>(&mut self, message: &M) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Clone,
    {
        let deadline = Instant::now() + DUMP_PATIENCE;
        loop {
            self.send(message.clone(), NLM_F_DUMP)?;
            match self.receive(Last::Acknowledgement)? {
                Dump::Whole(answers) => return Ok(answers),
                Dump::Interrupted if Instant::now() < deadline => {}
                Dump::Interrupted => {
                    return Err(io::Error::other(format!(
                        "it kept changing for {} s, no complete list was had",
                        DUMP_PATIENCE.as_secs()
                    )));
                }
            }
        }
    }

    /// Sends several messages at once, each with its flags, as netfilter takes a transaction. Ends with the first
    /// acknowledgement or error for any of them, so only one may ask for an acknowledgement.
    pub(super) fn exchange_all<M>(&mut self, messages: Vec<(M, u16)>) -> io::Result<()>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        self.send_all(messages)?;
        self.receive::<M>(Last::Acknowledgement).map(drop)
    }

    fn send<M: NetlinkSerializable>(&mut self, message: M, flags: u16) -> io::Result<()> {
        self.send_all(vec![(message, flags)])
    }

    fn send_all<M: NetlinkSerializable>(&mut self, messages: Vec<(M, u16)>) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for (message, flags) in messages {
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | flags;
            header.sequence_number = self.sequence;
            let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
            packet.finalize();
            let begin = bytes.len();
            bytes.resize(begin + packet.buffer_len(), 0);
            packet.serialize(&mut bytes[begin..]);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        again(|| self.socket.send(&bytes, 0)).map(drop)
    }

    /// Receives until the request is answered: by the last message or an error.
    fn receive<M: NetlinkDeserializable>(&mut self, last: Last) -> io::Result<Dump<M>> {
        let mut answers = Vec::new();
        let mut interrupted = false;
        // An answer that is not understood fails the exchange, but only after its end: a dump cut short would keep
        // the socket busy.
        let mut misunderstood = None;
        loop {
            self.buffer.clear();
            let (socket, buffer) = (&self.socket, &mut self.buffer);
            let length = again(|| socket.recv(buffer, libc::MSG_TRUNC))?;
            if length > self.buffer.len() {
                return Err(io::Error::other(format!(
                    "an answer of {length} bytes is longer than any should be"
                )));
            }
            let mut rest = &self.buffer[..];
            while let Some((header, bytes)) = split(&mut rest)? {
                // Answers to an earlier, abandoned request are ignored.
                if header.sequence_number != self.sequence {
                    continue;
                }
                interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
                match read(bytes, &mut answers) {
                    Ok(None) if last == Last::Answer && !answers.is_empty() => {
                        return Ok(Dump::Whole(answers));
                    }
                    Ok(None) => {}
                    Ok(Some(outcome)) => {
                        outcome.and(misunderstood.map_or(Ok(()), Err))?;
                        return Ok(if interrupted { Dump::Interrupted } else { Dump::Whole(answers) });
                    }
                    Err(error) if last == Last::Answer || header.message_type < FIRST_ANSWER_TYPE => {
                        return Err(error);
                    }
                    Err(error) => misunderstood = misunderstood.or(Some(error)),
                }
            }
        }
    }
}

/// Repeats a system call that a signal interrupted.
fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

    use netlink_packet_route::link::LinkMessage;
    use rustix::net::{AddressFamily as Family, SendFlags, SocketFlags, SocketType as Type, socketpair};

    use super::*;
    use crate::netlink::answer::tests::attribute;
    use crate::netlink::answer::{HEADER_BYTES, NLM_F_ACK_TLVS, NLMSGERR_ATTR_MSG};

    /// A message of `RTM_NEWLINK` about a link, or of netlink's own types.
    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + payload.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        bytes.extend([sequence.to_ne_bytes(), [0; 4]].concat());
        bytes.extend(payload);
        bytes
    }

    const NEW_LINK: u16 = 16;
    const ERROR: u16 = 2;
    const DONE: u16 = 3;

    fn question() -> RouteNetlinkMessage {
        RouteNetlinkMessage::GetLink(LinkMessage::default())
    }

    /// A socket whose other end has already sent the given datagrams.
    fn socket_with(datagrams: &[Vec<u8>]) -> (Socket, OwnedFd) {
        let (ours, theirs) = socketpair(Family::UNIX, Type::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for datagram in datagrams {
            rustix::net::send(&theirs, datagram, SendFlags::empty()).unwrap();
        }
        // SAFETY: the descriptor is open, and is given away here and nowhere else.
        let socket = unsafe { netlink_sys::Socket::from_raw_fd(ours.into_raw_fd()) };
        (Socket { socket, sequence: 0, buffer: Vec::with_capacity(BUFFER_BYTES) }, theirs)
    }

    #[test]
    fn an_interrupted_dump_is_asked_for_again() {
        let link = |index: u8, flags, sequence| {
            let mut payload = [0; 16];
            payload[4] = index;
            message(NEW_LINK, flags, sequence, &payload)
        };
        let done = |flags, sequence| message(DONE, flags, sequence, &[0; 4]);
        let (mut socket, _theirs) = socket_with(&[
            [link(1, 0, 1), link(2, NLM_F_DUMP_INTR, 1)].concat(),
            done(0, 1),
            done(NLM_F_DUMP_INTR, 2),
            // An answer to another request.
            link(9, 0, 2),
            [link(1, 0, 3), link(3, 0, 3), done(0, 3)].concat(),
        ]);
        let answers = socket.dump(&question()).unwrap();
        let indexes = answers.iter().map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => message.header.index,
            other => panic!("{other:?}"),
        });
        assert_eq!(indexes.collect::<Vec<_>>(), [1, 3]);
    }

    #[track_caller]
    fn check_refusal(datagram: Vec<u8>, errno: i32, text: &str) {
        let (mut socket, _theirs) = socket_with(&[datagram]);
        let error = crate::Error::new("x", socket.dump(&question()).unwrap_err());
        assert_eq!((error.errno(), error.reason().as_str()), (Some(errno), text));
    }

    #[test]
    fn refusals_come_as_errors_and_as_ends_of_dumps() {
        let code = (-libc::EINVAL).to_ne_bytes().to_vec();
        let words = attribute(NLMSGERR_ATTR_MSG, b"Not this way.\0");
        let capped = [code.clone(), vec![0; HEADER_BYTES], words.clone()].concat();
        let explained = "invalid argument: Not this way";
        check_refusal(message(ERROR, NLM_F_ACK_TLVS, 1, &capped), libc::EINVAL, explained);
        check_refusal(message(ERROR, 0, 1, &capped), libc::EINVAL, "invalid argument");
        let ended = [code, words].concat();
        check_refusal(message(DONE, NLM_F_ACK_TLVS, 1, &ended), libc::EINVAL, explained);
    }
}

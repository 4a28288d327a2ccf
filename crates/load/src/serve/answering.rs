//! From input to output: requests are answered in order, and many by one `send`.

use rustix::io::Errno;

use super::answers::{BODY_BYTES_MAX, Reply};
use super::ending::Ending;
use super::peer::{Flushed, Peer, PeerProtocol, Waits};
use super::request_head::{CONTINUE, RequestHead};
use super::responder::Responder;
use super::upload::Skipped;
use crate::grpc::OK;
use crate::target::Sizes;

/// Output that is gathered before it is sent: one `send` answers several pipelined requests, but a peer that requests
/// much and reads nothing cannot fill the memory.
const OUTPUT_BYTES: usize = 262_144;

impl Responder<'_> {
    /// Answers the requests in the input, in order, and keeps an incomplete one. False: the connection is over.
    pub(super) fn answer(&mut self, peer: &mut Peer, input: &[u8]) -> Result<bool, Errno> {
        let mut used = 0;
        while peer.ending.is_none() {
            let Some(bytes) = self.answer_one(peer, &input[used..]) else { break };
            used += bytes;
            // An answer that took time to make does not wait for the next one.
            let enough = self.output.len() >= OUTPUT_BYTES || peer.line.is_full() || self.work.is_some();
            if enough && self.deliver(peer)? == Flushed::Blocked {
                peer.held = input[used..].to_vec();
                return Ok(true);
            }
        }
        if peer.ending.is_none() {
            peer.held.extend_from_slice(&input[used..]);
        }
        let delivered = self.deliver(peer)?;
        // Over TCP the end is read once there is room for more requests.
        if peer.has_ended && delivered == Flushed::All {
            return self.on_end(peer);
        }
        Ok(!peer.is_over())
    }

    /// Takes a step through the input, which is mostly one request. How many bytes it took; `None`: more are needed.
    fn answer_one(&mut self, peer: &mut Peer, input: &[u8]) -> Option<usize> {
        match &mut peer.protocol {
            PeerProtocol::Http { upload: None } => self.answer_head(peer, input),
            PeerProtocol::Http { upload: Some(upload) } => match upload.body.skip(input) {
                Ok(Skipped::All(bytes)) => {
                    let reply = upload.reply;
                    peer.protocol = PeerProtocol::Http { upload: None };
                    self.reply(peer, reply);
                    Some(bytes)
                }
                Ok(Skipped::Part(bytes)) => (bytes > 0).then_some(bytes),
                Err(status) => self.give_up(peer, status, input),
            },
            PeerProtocol::Calls(_) | PeerProtocol::Greeting { .. } => {
                unreachable!("calls and greetings are read by themselves")
            }
            PeerProtocol::Raw { partial, whole: Some(whole) } => {
                let missing = *whole - *partial;
                if input.len() < missing {
                    *partial += input.len();
                    return (!input.is_empty()).then_some(input.len());
                }
                *partial = 0;
                let bytes = self.raw.map_or(*whole as u32, |raw| raw.response_bytes);
                if self.raw.is_none() {
                    peer.protocol = PeerProtocol::Raw { partial: 0, whole: None };
                }
                self.reply(peer, Reply::Raw { bytes });
                Some(missing)
            }
            PeerProtocol::Raw { partial, whole } => {
                let length = u32::from_le_bytes(*input.first_chunk()?);
                if !(Sizes::LENGTH_BYTES as u32..=BODY_BYTES_MAX).contains(&length) {
                    peer.ending = Some(Ending::Close);
                    return Some(input.len());
                }
                *partial = Sizes::LENGTH_BYTES;
                *whole = Some(length as usize);
                Some(Sizes::LENGTH_BYTES)
            }
        }
    }

    fn answer_head(&mut self, peer: &mut Peer, input: &[u8]) -> Option<usize> {
        match RequestHead::read(&mut self.last, &self.answers, input) {
            RequestHead::Incomplete => None,
            RequestHead::Now { bytes, reply } => {
                self.reply(peer, reply);
                Some(bytes)
            }
            RequestHead::AfterBody { bytes, upload, says_continue } => {
                if says_continue {
                    self.output.extend_from_slice(CONTINUE);
                    self.line_up_now(peer);
                }
                peer.protocol = PeerProtocol::Http { upload: Some(upload) };
                Some(bytes)
            }
            RequestHead::Unreadable { status } => self.give_up(peer, status, input),
        }
    }

    /// Refuses a request after which the next cannot be found.
    fn give_up(&mut self, peer: &mut Peer, status: u16, input: &[u8]) -> Option<usize> {
        self.reply(peer, Reply::Refusal { status, keep_alive: false });
        Some(input.len())
    }

    /// Queues the answer to one request.
    fn reply(&mut self, peer: &mut Peer, reply: Reply) {
        if let Some(work) = &mut self.work {
            work.one();
        }
        if !reply.keep_alive() {
            peer.ending = Some(Ending::Close);
        }
        if self.injector.is_some() {
            self.reply_in_time(peer, reply);
        } else {
            self.write(reply);
        }
    }

    /// Writes an answer to the output.
    pub(super) fn write(&mut self, reply: Reply) {
        match reply {
            Reply::Page { .. } | Reply::Raw { .. } => self.served.answered += 1,
            Reply::Refusal { .. } => self.served.refused += 1,
        }
        self.answers.write(reply, &mut self.output);
    }

    /// Sends what can be sent now.
    fn deliver(&mut self, peer: &mut Peer) -> Result<Flushed, Errno> {
        if self.injector.is_some() { self.deliver_in_time(peer) } else { self.flush(peer) }
    }

    pub(super) fn flush(&mut self, peer: &mut Peer) -> Result<Flushed, Errno> {
        let flushed = peer.send(&self.output);
        self.output.clear();
        if flushed? == Flushed::Blocked {
            self.watch(peer, Waits::Room)?;
            return Ok(Flushed::Blocked);
        }
        Ok(Flushed::All)
    }

    /// Does what can be done for a peer that calls. False: the connection is over.
    pub(super) fn serve_calls(&mut self, peer: &mut Peer) -> Result<bool, Errno> {
        let PeerProtocol::Calls(calls) = &mut peer.protocol else { return Ok(false) };
        loop {
            let mut on = calls.turn();
            let mut answered = false;
            while let Some((status, coming)) = calls.next() {
                if let Some(work) = &mut self.work {
                    work.one();
                }
                let count = if status == OK { &mut self.served.answered } else { &mut self.served.refused };
                *count += 1;
                coming.answer(status);
                answered = true;
                // An answer that took time to make does not wait for the next one.
                if self.work.is_some() {
                    on &= calls.turn();
                }
            }
            if !on {
                return Ok(false);
            }
            if !answered && !calls.goes_on() {
                return Ok(true);
            }
        }
    }
}

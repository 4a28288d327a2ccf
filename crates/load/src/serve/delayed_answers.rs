//! Answers with faults: each is made when its request is read, lines up behind those before it, and leaves when it is
//! due.

use rustix::io::Errno;

use linux::clock;

use super::answers::Reply;
use super::injector::{Due, Fate};
use super::peer::{Flushed, Peer, Waits};
use super::responder::Responder;
use crate::poller::Tag;

impl Responder<'_> {
    /// Waits through a freeze, and does the work that is due. Returns at once without faults.
    pub(super) fn keep_time(&mut self, ends: &dyn Fn() -> bool) {
        while let Some(injector) = &mut self.injector {
            let now_ns = injector.sit_out_freeze(ends);
            match injector.take_due(now_ns) {
                None => return,
                Some(Due::Peer(tag)) => self.on_time(tag),
                Some(Due::Datagram(datagram)) => self.send_datagram(&datagram),
            }
        }
    }

    fn on_time(&mut self, tag: Tag) {
        let Some(mut peer) = self.take(tag) else { return };
        peer.line.armed_ns = None;
        let on = self.go_on(&mut peer);
        self.settle(peer, on);
    }

    /// Sends the answers that are due, and continues reading if the peer had pipelined too many requests. False: the
    /// connection is over.
    fn go_on(&mut self, peer: &mut Peer) -> Result<bool, Errno> {
        if peer.waits == Waits::Room {
            // The line goes on when there is room.
            return Ok(true);
        }
        let flushed = self.deliver_in_time(peer)?;
        if flushed == Flushed::All && peer.waits == Waits::Time && peer.ending.is_none() {
            self.watch(peer, Waits::Input)?;
            let held = std::mem::take(&mut peer.held);
            return self.answer(peer, &held);
        }
        Ok(!peer.is_over())
    }

    /// Makes the answer to one request, and lines it up.
    pub(super) fn reply_in_time(&mut self, peer: &mut Peer, reply: Reply) {
        let Some(injector) = &mut self.injector else { return };
        let (fate, due_ns) = injector.draw(clock::now_ns());
        let has_status = !matches!(reply, Reply::Raw { .. });
        injector.injected.errors += u64::from(fate == Fate::Error && has_status);
        self.write(if fate == Fate::Error { reply.as_error() } else { reply });
        if let Fate::Half(ending) = fate {
            self.output.truncate(self.output.len() / 2);
            peer.ending = Some(ending);
        }
        self.line_up(peer, due_ns);
    }

    /// An interim answer, which has no fate but has to stay behind those before it.
    pub(super) fn line_up_now(&mut self, peer: &mut Peer) {
        if self.injector.is_some() {
            self.line_up(peer, 0);
        }
    }

    /// With faults the output holds only the answer that is being made.
    fn line_up(&mut self, peer: &mut Peer, due_ns: u64) {
        peer.line.push(due_ns, self.output.as_slice().to_vec());
        self.output.clear();
    }

    pub(super) fn deliver_in_time(&mut self, peer: &mut Peer) -> Result<Flushed, Errno> {
        if let Some(injector) = &mut self.injector {
            peer.line.release(clock::now_ns(), injector.trickle(), &mut self.output);
        }
        if self.flush(peer)? == Flushed::Blocked {
            return Ok(Flushed::Blocked);
        }
        if let (Some(injector), Some(next_ns)) = (&mut self.injector, peer.line.next_ns())
            && peer.line.armed_ns != Some(next_ns)
        {
            peer.line.armed_ns = Some(next_ns);
            injector.wake_peer(next_ns, peer.tag);
        }
        if peer.line.is_full() {
            self.watch(peer, Waits::Time)?;
            return Ok(Flushed::Blocked);
        }
        Ok(Flushed::All)
    }
}

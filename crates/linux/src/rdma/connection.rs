//! A reliable connection (RC) between two queue pairs, as messages that one side sends and the other receives.
//!
//! It is the loop that programs of verbs have: memory is registered once, requests to receive are posted before
//! the peer can send, a message is one SEND. A thread sleeps on the channel of completions, or looks into the
//! queue again and again.
//!
//! How the two ends learn each other's [`VerbsAddress`] is the caller's.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::VerbsDevice;
use super::device::{PORT, done, made, none};
use super::library::{
    Capacity, Channel, Completion, CompletionQueue, QueuePair, QueuePairSetup, QueuePairState,
    ReceiveRequest, SendRequest, Way,
};
use super::memory::Registered;

/// Messages in each direction that may be on their way.
const SLOTS: u32 = 4;
/// `IBV_QPT_RC`, `IBV_WR_SEND`, `IBV_SEND_SIGNALED`.
const RELIABLE: u32 = 2;
const SEND: u32 = 2;
const SIGNALED: u32 = 2;
/// `IBV_QPS_INIT`, `IBV_QPS_RTR`, `IBV_QPS_RTS`: states of a queue pair.
const INIT: u32 = 1;
const READY_TO_RECEIVE: u32 = 2;
const READY_TO_SEND: u32 = 3;
/// Which attributes a change of the state has (`enum ibv_qp_attr_mask`): for the first, partition, port and access; for
/// the second, way, MTU, peer, number, reads and timer; for the third, time-outs, number and reads.
const TO_INIT: i32 = 0x1 | 0x8 | 0x10 | 0x20;
const TO_RECEIVE: i32 = 0x1 | 0x80 | 0x100 | 0x10_0000 | 0x1000 | 0x2_0000 | 0x8000;
const TO_SEND: i32 = 0x1 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x2000;
/// A message that is not acknowledged is sent again after 4.096 µs · 2¹⁶, 268 ms, seven times. An emulated machine that
/// stands still for less loses nothing.
const TIMEOUT: u8 = 16;
const RETRIES: u8 = 7;
/// As often as it takes, each 640 µs: the peer has no request to receive posted.
const NOT_READY_RETRIES: u8 = 7;
const NOT_READY_TIMER: u8 = 12;
/// How long a sender waits for a slot. All are taken only if the peer has acknowledged nothing for as long
/// as its own timeouts.
const SLOT_PATIENCE: Duration = Duration::from_secs(3);
/// `IBV_WC_RETRY_EXC_ERR`, `IBV_WC_WR_FLUSH_ERR`: the peer did not acknowledge; the connection has failed before.
const RETRIES_EXCEEDED: u32 = 12;
const FLUSHED: u32 = 5;

/// Where a queue pair is found, for its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerbsAddress {
    /// The number of the queue pair on its device.
    pub queue_pair: u32,
    /// The number of the first packet that it will send, of 24 bits.
    pub first_packet: u32,
    /// The device's address: IPv6, or IPv4 mapped into it.
    pub gid: [u8; 16],
    /// The code of the greatest payload of its packets (`enum ibv_mtu`).
    pub mtu: u32,
}

/// What a thread does until a message comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VerbsWait {
    /// It sleeps: the device's event wakes it.
    #[default]
    Events,
    /// It looks into the queue in its own memory, without a system call.
    Polling,
}

/// One end of a connection, with its memory.
pub struct VerbsConnection {
    queue_pair: NonNull<QueuePair>,
    sent: NonNull<CompletionQueue>,
    received: NonNull<CompletionQueue>,
    channel: NonNull<Channel>,
    memory: ManuallyDrop<Registered>,
    message_bytes: usize,
    wait: VerbsWait,
    /// The next completion is also an event at the channel.
    is_armed: bool,
    /// A message that was seen and not taken yet.
    came: Option<Completion>,
    /// Slots of messages that the peer has not acknowledged yet.
    unacknowledged: u32,
    next_slot: u32,
    first_packet: u32,
    device: Arc<VerbsDevice>,
}

// SAFETY: functions of libibverbs may be called by any thread, and the memory is this value's own.
unsafe impl Send for VerbsConnection {}

impl VerbsConnection {
    /// An end that has no peer yet. Messages have up to so many bytes.
    ///
    /// # Errors
    /// The device refuses, mostly because memory may not be locked (`RLIMIT_MEMLOCK`).
    pub fn new(
        device: &Arc<VerbsDevice>,
        message_bytes: u32,
        wait: VerbsWait,
    ) -> io::Result<VerbsConnection> {
        let message_bytes = message_bytes as usize;
        let memory = Registered::new(device, message_bytes * 2 * SLOTS as usize)?;
        let (library, context) = (device.library, device.context.as_ptr());
        // SAFETY: the device is open.
        let channel = made(unsafe { (library.create_channel)(context) })?;
        let queue = |channel| {
            let entries = SLOTS.cast_signed();
            // SAFETY: as above; the channel is null or one of the device's.
            made(unsafe { (library.create_cq)(context, entries, none(), channel, 0) })
        };
        let abandon = |queues: &[NonNull<CompletionQueue>]| {
            for queue in queues {
                // SAFETY: no queue pair has it.
                unsafe { (library.destroy_cq)(queue.as_ptr()) };
            }
            // SAFETY: no queue has it any more.
            unsafe { (library.destroy_channel)(channel.as_ptr()) };
        };
        let received = queue(channel.as_ptr()).inspect_err(|_| abandon(&[]))?;
        let sent = queue(none()).inspect_err(|_| abandon(&[received]))?;
        let pair = queue_pair(device, sent, received).inspect_err(|_| abandon(&[sent, received]))?;
        // SAFETY: it is a queue pair of the library's.
        let number = unsafe { (*pair.as_ptr()).number };
        let mut connection = VerbsConnection {
            queue_pair: pair,
            sent,
            received,
            channel,
            memory: ManuallyDrop::new(memory),
            message_bytes,
            wait,
            is_armed: false,
            came: None,
            unacknowledged: 0,
            next_slot: 0,
            // Any will do that is not that of the connection before.
            first_packet: number.wrapping_mul(2_654_435_761) & 0xff_ffff,
            device: Arc::clone(device),
        };
        connection.begin()?;
        Ok(connection)
    }

    /// What its peer has to know.
    pub fn address(&self) -> VerbsAddress {
        // SAFETY: the queue pair is this value's own.
        let queue_pair = unsafe { (*self.queue_pair.as_ptr()).number };
        let VerbsDevice { gid, mtu, .. } = *self.device;
        VerbsAddress { queue_pair, first_packet: self.first_packet, gid, mtu }
    }

    /// Connects it. The peer may send from now on, and so may this end as soon as the peer has done the same.
    ///
    /// # Errors
    /// No way leads to the peer's address from the device's link, or the address is none.
    pub fn connect(&mut self, peer: &VerbsAddress) -> io::Result<()> {
        let words = |at: usize| u64::from_ne_bytes(peer.gid[at..at + 8].try_into().expect("eight bytes"));
        let way = Way {
            gid: [words(0), words(8)],
            own_gid_index: self.device.gid_index,
            hop_limit: 64,
            is_global: 1,
            port: PORT,
            ..Way::default()
        };
        let mut state = QueuePairState {
            state: READY_TO_RECEIVE,
            mtu: peer.mtu.min(self.device.mtu),
            peer: peer.queue_pair,
            receive_number: peer.first_packet,
            not_ready_timer: NOT_READY_TIMER,
            way,
            ..QueuePairState::default()
        };
        self.change(&mut state, TO_RECEIVE)?;
        let mut state = QueuePairState {
            state: READY_TO_SEND,
            send_number: self.first_packet,
            timeout: TIMEOUT,
            retries: RETRIES,
            not_ready_retries: NOT_READY_RETRIES,
            ..QueuePairState::default()
        };
        self.change(&mut state, TO_SEND)?;
        match self.wait {
            VerbsWait::Events => self.arm(),
            VerbsWait::Polling => Ok(()),
        }
    }

    /// The next message is an event at the descriptor too, so that a thread may sleep until it comes. Where messages
    /// are waited for by events, each one is.
    pub fn arm(&mut self) -> io::Result<()> {
        if !self.is_armed {
            let context = self.device.context.as_ptr();
            // SAFETY: device and queue are open.
            done(unsafe { ((*context).operations.req_notify_cq)(self.received.as_ptr(), 0) })?;
            self.is_armed = true;
        }
        Ok(())
    }

    /// Sends the beginning of these bytes as a message; how many bytes it has.
    ///
    /// # Errors
    /// `ETIMEDOUT` if the peer does not acknowledge, `ECONNRESET` if the connection has failed before,
    /// what the device says.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.await_slot()?;
        let length = bytes.len().min(self.message_bytes);
        let at = (SLOTS + self.next_slot) as usize * self.message_bytes;
        self.memory.write(at, &bytes[..length]);
        let mut piece = self.memory.piece(at, length);
        let mut request = SendRequest {
            id: u64::from(self.next_slot),
            next: none(),
            pieces: &raw mut piece,
            count: 1,
            opcode: SEND,
            flags: SIGNALED,
            _other: [0; 11],
        };
        let (context, mut bad) = (self.device.context.as_ptr(), none());
        // SAFETY: the queue pair is this value's own; the request is copied before the function returns, and its memory
        // stays registered and unchanged until it is acknowledged, because the slot is taken.
        done(unsafe {
            ((*context).operations.post_send)(self.queue_pair.as_ptr(), &raw mut request, &raw mut bad)
        })?;
        self.next_slot = (self.next_slot + 1) % SLOTS;
        self.unacknowledged += 1;
        Ok(length)
    }

    /// Takes the next message; `None` if none has come. What it has beyond the buffer is lost.
    ///
    /// # Errors
    /// Those of [`VerbsConnection::send`].
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.is_armed && self.take_event()? {
            self.is_armed = false;
            if self.wait == VerbsWait::Events {
                // Before the look into the queue: what comes behind it wakes again.
                self.arm()?;
            }
        }
        if !self.has_come()? {
            return Ok(None);
        }
        let Some(completion) = self.came.take() else { return Ok(None) };
        let slot = u32::try_from(completion.id).expect("slots are small numbers");
        let length = (completion.bytes as usize).min(buffer.len());
        self.memory.read(slot as usize * self.message_bytes, &mut buffer[..length]);
        self.post_receive(slot)?;
        Ok(Some(length))
    }

    /// Whether a message is there to be taken.
    ///
    /// # Errors
    /// Those of [`VerbsConnection::send`].
    pub fn has_come(&mut self) -> io::Result<bool> {
        if self.came.is_none() {
            self.came = self.poll(self.received)?;
        }
        Ok(self.came.is_some())
    }

    /// Whether the threads of this end look for messages themselves.
    pub fn polls(&self) -> bool {
        self.wait == VerbsWait::Polling
    }

    fn begin(&mut self) -> io::Result<()> {
        let channel = self.as_fd();
        rustix::fs::fcntl_setfl(channel, rustix::fs::OFlags::NONBLOCK)?;
        let mut state = QueuePairState { state: INIT, port: PORT, ..QueuePairState::default() };
        self.change(&mut state, TO_INIT)?;
        (0..SLOTS).try_for_each(|slot| self.post_receive(slot))
    }

    fn change(&self, state: &mut QueuePairState, mask: i32) -> io::Result<()> {
        // SAFETY: the queue pair is this value's own, and the state has the library's form.
        done(unsafe { (self.device.library.modify_qp)(self.queue_pair.as_ptr(), state, mask) })
    }

    fn post_receive(&mut self, slot: u32) -> io::Result<()> {
        let mut piece = self.memory.piece(slot as usize * self.message_bytes, self.message_bytes);
        let mut request =
            ReceiveRequest { id: u64::from(slot), next: none(), pieces: &raw mut piece, count: 1 };
        let (context, mut bad) = (self.device.context.as_ptr(), none());
        // SAFETY: the queue pair is this value's own; the request is copied, and its memory stays registered, and is
        // not looked at before the device has written it.
        done(unsafe {
            ((*context).operations.post_recv)(self.queue_pair.as_ptr(), &raw mut request, &raw mut bad)
        })
    }

    /// Waits until a message can be sent.
    fn await_slot(&mut self) -> io::Result<()> {
        let mut deadline = None;
        loop {
            while self.poll(self.sent)?.is_some() {
                self.unacknowledged -= 1;
            }
            if self.unacknowledged < SLOTS {
                return Ok(());
            }
            // What was answered was acknowledged: with one request at a time nothing waits here.
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + SLOT_PATIENCE);
            if Instant::now() >= deadline {
                return Err(Errno::TIMEDOUT.into());
            }
        }
    }

    /// The next request of a queue that is done.
    fn poll(&self, queue: NonNull<CompletionQueue>) -> io::Result<Option<Completion>> {
        let (context, mut completion) = (self.device.context.as_ptr(), Completion::default());
        // SAFETY: the queue is this value's own, and the place is for one completion.
        let count = unsafe { ((*context).operations.poll_cq)(queue.as_ptr(), 1, &raw mut completion) };
        match (count, completion.status) {
            (0, _) => Ok(None),
            (1.., 0) => Ok(Some(completion)),
            (1.., RETRIES_EXCEEDED) => Err(Errno::TIMEDOUT.into()),
            (1.., FLUSHED) => Err(Errno::CONNRESET.into()),
            _ => Err(Errno::IO.into()),
        }
    }

    /// Whether there was an event at the channel.
    fn take_event(&self) -> io::Result<bool> {
        let library = self.device.library;
        let (mut queue, mut context) = (none(), none());
        // SAFETY: the channel is this value's own, and both places are for a pointer.
        let refused =
            unsafe { (library.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut context) };
        if refused != 0 {
            let why = io::Error::last_os_error();
            return if why.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(why) };
        }
        // SAFETY: the event was of this queue, which is this value's own.
        unsafe { (library.ack_cq_events)(queue, 1) };
        Ok(true)
    }
}

/// Becomes readable when a message comes, if it is armed.
impl AsFd for VerbsConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as this value.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).descriptor) }
    }
}

impl fmt::Debug for VerbsConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsConnection").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Drop for VerbsConnection {
    fn drop(&mut self) {
        let library = self.device.library;
        // SAFETY: each is this value's own, all events are acknowledged, and who uses another goes before it. The
        // memory goes when no queue pair can write into it any more.
        unsafe {
            (library.destroy_qp)(self.queue_pair.as_ptr());
            (library.destroy_cq)(self.sent.as_ptr());
            (library.destroy_cq)(self.received.as_ptr());
            (library.destroy_channel)(self.channel.as_ptr());
            ManuallyDrop::drop(&mut self.memory);
        }
    }
}

fn queue_pair(
    device: &VerbsDevice,
    sent: NonNull<CompletionQueue>,
    received: NonNull<CompletionQueue>,
) -> io::Result<NonNull<QueuePair>> {
    let capacity =
        Capacity { sends: SLOTS, receives: SLOTS, send_pieces: 1, receive_pieces: 1, inline_bytes: 0 };
    let mut setup = QueuePairSetup {
        context: none(),
        send_queue: sent.as_ptr(),
        receive_queue: received.as_ptr(),
        shared_receives: none(),
        capacity,
        kind: RELIABLE,
        signals_all: 0,
    };
    // SAFETY: domain and queues are of an open device; the setup is read, and the capacity in it written.
    made(unsafe { (device.library.create_qp)(device.domain.as_ptr(), &raw mut setup) })
}

//! A log of a run's requests, each with its instants, for questions that a histogram cannot answer.
//!
//! A worker may not allocate, lock or write. It fills a block of memory that was made before the run, hands the full
//! block over and takes an empty one. A collecting thread passes full blocks on and returns them. Where it does not
//! keep up, requests are counted instead of logged.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread;
use std::time::Duration;

use crate::connection::OpenRequest;

/// What became of a request that was due within the schedule. Instants are nanoseconds of [`linux::clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// When the schedule wanted it to be sent.
    pub intended_ns: u64,
    /// When it was sent; [`Exchange::NEVER`] if it was not.
    pub sent_ns: u64,
    /// When its answer was read; [`Exchange::NEVER`] if none came, or not the expected one.
    pub received_ns: u64,
    /// Since when its connection was free for it; [`Exchange::NEVER`] if it was not sent.
    pub free_ns: u64,
    /// The index of its connection among its client's; [`Exchange::NOWHERE`] if it never had one.
    pub connection: u32,
    /// The index of its client in the run.
    pub client: u32,
}

impl Exchange {
    /// An instant that has not come.
    pub const NEVER: u64 = u64::MAX;
    /// The number of a connection where there is none.
    pub const NOWHERE: u32 = u32::MAX;

    /// A request that was on a connection, and when its answer was read.
    pub(crate) fn of(connection: u32, open: OpenRequest, received_ns: u64) -> Exchange {
        let OpenRequest { intended_ns, sent_ns, free_ns, .. } = open;
        Exchange { intended_ns, sent_ns, received_ns, free_ns, connection, client: 0 }
    }

    /// A request that was due and not sent.
    pub(crate) fn unsent(intended_ns: u64) -> Exchange {
        let never = Exchange::NEVER;
        Exchange {
            intended_ns,
            sent_ns: never,
            received_ns: never,
            free_ns: never,
            connection: Exchange::NOWHERE,
            client: 0,
        }
    }

    /// received − intended, in nanoseconds; `None` without the expected answer.
    pub fn response_ns(&self) -> Option<u64> {
        (self.received_ns != Exchange::NEVER).then(|| self.received_ns.saturating_sub(self.intended_ns))
    }

    /// sent − max(intended, free), in nanoseconds: how late the generator itself was. `None` if it was not sent.
    pub fn late_ns(&self) -> Option<u64> {
        (self.sent_ns != Exchange::NEVER)
            .then(|| self.sent_ns.saturating_sub(self.intended_ns.max(self.free_ns)))
    }
}

/// A request that waits for its connection has not been sent.
const _: () =
    assert!(OpenRequest::PROMISED == Exchange::NEVER, "both stand for an instant that has not come");

/// Exchanges of a block: an eighth of a megabyte, which a thread with 100 000 requests a second fills in 27 ms.
const BLOCK: usize = 2_730;
/// The most blocks of a thread. While one is filled, the others may wait for the collector: 0.8 s at that rate.
const BLOCKS: usize = 32;

/// The longest time between two looks of the collector: what takes the log may have other buffers to empty too.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How often the collector looks: before a thread has filled half of its blocks.
pub(crate) fn looks_every(requests_per_s: f64) -> Duration {
    let half_full = Duration::try_from_secs_f64((BLOCKS * BLOCK / 2) as f64 / requests_per_s);
    half_full.map_or(LOOK_MAX, |half_full| half_full.min(LOOK_MAX))
}

type Block = Vec<Exchange>;

/// The end of one worker, which fills blocks and never waits.
pub(crate) struct ExchangeLog {
    client: u32,
    block: Block,
    full: SyncSender<(u32, Block)>,
    empty: Receiver<Block>,
    /// Requests that found no room.
    unlogged: u64,
}

/// The end that takes full blocks and hands out empty ones.
pub(crate) struct Collector {
    full: Receiver<(u32, Block)>,
    empty: Vec<Sender<Block>>,
}

/// Makes the ends for some threads, with all memory that the log will use: of a short run room for all requests of a
/// thread, since to write memory that is never used would empty the caches just before the run.
pub(crate) fn logs(threads: usize, requests_each: f64) -> (Vec<ExchangeLog>, Collector) {
    // One more, because the schedule may give a thread a few requests more than its share.
    let blocks = (requests_each / BLOCK as f64 + 2.0).min(BLOCKS as f64) as usize;
    let (sender, full) = sync_channel(threads * blocks);
    let (mut logs, mut empty) = (Vec::with_capacity(threads), Vec::with_capacity(threads));
    for client in 0..threads as u32 {
        let (returned, taken) = channel();
        for _ in 1..blocks {
            returned.send(block()).expect("the receiver is in scope");
        }
        logs.push(ExchangeLog { client, block: block(), full: sender.clone(), empty: taken, unlogged: 0 });
        empty.push(returned);
    }
    (logs, Collector { full, empty })
}

/// Every page is written, so that no page fault happens while a request waits.
fn block() -> Block {
    let mut block = vec![Exchange::unsent(0); BLOCK];
    block.clear();
    block
}

impl ExchangeLog {
    /// Notes a request. Its client is this log's.
    pub(crate) fn note(&mut self, exchange: Exchange) {
        if self.block.len() == BLOCK && !self.turn_over() {
            self.unlogged += 1;
            return;
        }
        self.block.push(Exchange { client: self.client, ..exchange });
    }

    /// Hands the full block over. False: there is no empty one.
    fn turn_over(&mut self) -> bool {
        let Ok(empty) = self.empty.try_recv() else { return false };
        let full = std::mem::replace(&mut self.block, empty);
        // The channel has room for every block. If the collector is gone, the block is not needed.
        self.full.try_send((self.client, full)).is_ok()
    }

    /// The last block. How many requests found no room.
    pub(crate) fn close(mut self) -> u64 {
        let last = std::mem::take(&mut self.block);
        let unlogged = self.unlogged + if self.full.try_send((self.client, last)).is_ok() { 0 } else { 1 };
        self.unlogged = 0;
        unlogged
    }
}

impl Collector {
    /// Passes on what is logged, until every log is closed. Requests of a thread come in the order in which they ended.
    /// After each pause `sink` gets an empty block, for what it does besides. Between two looks it sleeps, and the
    /// thread that closes the logs unparks it. It does not wait for full blocks: a worker would then wake it, which
    /// costs the worker some microseconds, and what it does would take a CPU of the run.
    pub(crate) fn collect(self, every: Duration, sink: &mut dyn FnMut(&[Exchange])) {
        loop {
            match self.full.try_recv() {
                Ok((client, mut block)) => {
                    sink(&block);
                    block.clear();
                    // A log that is closed needs it no more.
                    let _closed = self.empty[client as usize].send(block);
                }
                Err(TryRecvError::Empty) => {
                    thread::park_timeout(every);
                    sink(&[]);
                }
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(intended_ns: u64) -> Exchange {
        Exchange {
            intended_ns,
            sent_ns: intended_ns + 5,
            received_ns: intended_ns + 100,
            free_ns: intended_ns + 3,
            connection: 1,
            client: 0,
        }
    }

    #[test]
    fn times_are_differences_and_absent_without_their_instants() {
        let answered = exchange(1_000);
        assert_eq!((answered.response_ns(), answered.late_ns()), (Some(100), Some(2)));
        let unsent = Exchange { sent_ns: Exchange::NEVER, received_ns: Exchange::NEVER, ..answered };
        assert_eq!((unsent.response_ns(), unsent.late_ns()), (None, None));
    }

    #[test]
    fn every_request_arrives_with_its_client() {
        let (logs, collector) = logs(2, f64::INFINITY);
        let count = 3 * BLOCK as u64 + 7;
        let mut got = [const { Vec::new() }; 2];
        thread::scope(|scope| {
            for mut log in logs {
                scope.spawn(move || {
                    (0..count).for_each(|at| log.note(exchange(at)));
                    assert_eq!(log.close(), 0);
                });
            }
            collector.collect(Duration::from_millis(1), &mut |block| {
                block.iter().for_each(|exchange| got[exchange.client as usize].push(exchange.intended_ns));
            });
        });
        assert!(got.iter().all(|got| got.iter().copied().eq(0..count)));
    }

    #[test]
    fn a_short_run_has_room_for_all_its_requests_and_no_more_memory() {
        for requests in [1, BLOCK, 3 * BLOCK + 1] {
            let (mut logs, collector) = logs(1, requests as f64);
            let mut log = logs.remove(0);
            (0..requests as u64).for_each(|at| log.note(exchange(at)));
            assert_eq!(log.close(), 0, "{requests} requests");
            let mut got = 0;
            collector.collect(Duration::from_millis(1), &mut |block| got += block.len());
            assert_eq!(got, requests);
        }
        let (mut logs, _collector) = logs(1, BLOCK as f64);
        let mut log = logs.remove(0);
        (0..4 * BLOCK as u64).for_each(|at| log.note(exchange(at)));
        assert_eq!(log.close(), BLOCK as u64);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (mut logs, collector) = logs(1, f64::INFINITY);
        let mut log = logs.remove(0);
        let room = (BLOCK * BLOCKS) as u64;
        (0..room + 9).for_each(|at| log.note(exchange(at)));
        assert_eq!(log.close(), 9);
        let mut got = 0;
        collector.collect(Duration::from_millis(1), &mut |block| got += block.len() as u64);
        assert_eq!(got, room);
    }
}

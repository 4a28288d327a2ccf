//! Records that the kernel writes into an event's buffer: `struct perf_event_header` and its body, as
//! include/uapi/linux/perf_event.h describes for the requested fields.

use super::Samples;
use crate::native::{u32_at, u64_at};

/// A CPU at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Sample {
    /// The process, as seen from the namespace of the process that opened the event; 0: the idle task.
    pub process: u32,
    pub thread: u32,
    /// It was in user mode, and `kernel` is empty.
    pub user: bool,
    /// Addresses in the kernel: where it was first, then where each caller goes on.
    pub kernel: Vec<u64>,
}

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;

/// Of the header's `misc`.
const CPUMODE_MASK: u16 = 7;
const CPUMODE_USER: u16 = 2;

/// `PERF_CONTEXT_MAX`: in a call chain, values from here on are not addresses; they mark the kind of the addresses
/// that follow.
const CONTEXT_FROM: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;

/// What lies between two positions of a buffer that begins again at its end. Positions count all bytes ever written.
pub(super) fn unwrapped(buffer: &[u8], tail: u64, head: u64) -> Vec<u8> {
    let size = buffer.len() as u64;
    let length = head.saturating_sub(tail).min(size) as usize;
    let from = (tail % size) as usize;
    let first = length.min(buffer.len() - from);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&buffer[from..from + first]);
    bytes.extend_from_slice(&buffer[..length - first]);
    bytes
}

/// Adds the samples of whole records, and the number of lost ones. Records of other kinds (throttling) are skipped.
pub(super) fn read(mut bytes: &[u8], taken: &mut Samples) -> Result<(), String> {
    while !bytes.is_empty() {
        let kind = u32_at(bytes, 0).ok_or("a record is cut off")?;
        let half = |at: usize| bytes.get(at..at + 2).map(|two| u16::from_ne_bytes([two[0], two[1]]));
        let (Some(misc), Some(size)) = (half(4), half(6)) else { return Err("a record is cut off".into()) };
        let size = usize::from(size);
        if size < 8 || size > bytes.len() {
            return Err(format!("a record has {size} bytes, {} are there", bytes.len()));
        }
        let (record, rest) = bytes.split_at(size);
        let body = &record[8..];
        match kind {
            RECORD_SAMPLE => taken.samples.push(sample(body, misc).ok_or("a sample is cut off")?),
            RECORD_LOST => taken.lost += u64_at(body, 8).ok_or("a record is cut off")?,
            RECORD_LOST_SAMPLES => taken.lost += u64_at(body, 0).ok_or("a record is cut off")?,
            _ => {}
        }
        bytes = rest;
    }
    Ok(())
}

/// `u32 pid, tid; u64 nr; u64 ips[nr]`.
fn sample(body: &[u8], misc: u16) -> Option<Sample> {
    let count = usize::try_from(u64_at(body, 8)?).ok()?;
    let mut kernel = Vec::new();
    let mut whose = None;
    for index in 0..count {
        match u64_at(body, 16 + 8 * index)? {
            context if context >= CONTEXT_FROM => whose = Some(context),
            address if whose == Some(CONTEXT_KERNEL) => kernel.push(address),
            _ => {}
        }
    }
    let user = misc & CPUMODE_MASK == CPUMODE_USER;
    Some(Sample { process: u32_at(body, 0)?, thread: u32_at(body, 4)?, user, kernel })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with its header.
    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend((body.len() as u16 + 8).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn chain(process: u32, thread: u32, words: &[u64]) -> Vec<u8> {
        let mut body = [process.to_ne_bytes(), thread.to_ne_bytes()].concat();
        body.extend((words.len() as u64).to_ne_bytes());
        body.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        body
    }

    fn lost(count: u64) -> Vec<u8> {
        [7_u64.to_ne_bytes(), count.to_ne_bytes()].concat()
    }

    fn taken(bytes: &[u8]) -> Result<Samples, String> {
        let mut taken = Samples::default();
        read(bytes, &mut taken).map(|()| taken)
    }

    /// A sample of a kernel stack, one of user mode, a throttling record, and a record of three losses.
    fn stream() -> Vec<u8> {
        let kernel = chain(10, 11, &[CONTEXT_KERNEL, 0xffff_ffff_8100_0010, 0xffff_ffff_8100_0200]);
        [
            record(RECORD_SAMPLE, 1, &kernel),
            record(RECORD_SAMPLE, 2, &chain(20, 21, &[])),
            record(5, 0, &[0; 24]),
            record(RECORD_LOST, 0, &lost(3)),
        ]
        .concat()
    }

    fn expected() -> Samples {
        let kernel = vec![0xffff_ffff_8100_0010, 0xffff_ffff_8100_0200];
        Samples {
            samples: vec![
                Sample { process: 10, thread: 11, user: false, kernel },
                Sample { process: 20, thread: 21, user: true, kernel: vec![] },
            ],
            lost: 3,
        }
    }

    #[test]
    fn kinds_of_records_are_distinguished() {
        assert_eq!(taken(&stream()), Ok(expected()));
        assert_eq!(taken(&record(RECORD_LOST_SAMPLES, 0, &5_u64.to_ne_bytes())).unwrap().lost, 5);
        assert_eq!(taken(&[]), Ok(Samples::default()));
    }

    #[test]
    fn a_buffer_begins_again_at_its_end() {
        let stream = stream();
        // Wherever the first record lies, also with its header in two parts, and after any number of rounds.
        for from in (0..256).step_by(8) {
            let mut buffer = vec![0xee_u8; 256];
            for (index, byte) in stream.iter().enumerate() {
                buffer[(from + index) % 256] = *byte;
            }
            let tail = 256 * 1_000 + from as u64;
            let bytes = unwrapped(&buffer, tail, tail + stream.len() as u64);
            assert_eq!(taken(&bytes), Ok(expected()), "from {from}");
        }
        assert_eq!(unwrapped(&[1, 2, 3, 4], 6, 10), [3, 4, 1, 2], "a full one");
        assert_eq!(unwrapped(&[1, 2, 3, 4], 6, 6), [0_u8; 0]);
    }

    #[test]
    fn addresses_of_others_than_the_kernel_are_left_out() {
        let user = -512_i64 as u64;
        let words = [CONTEXT_KERNEL, 1, 2, user, 3, 4];
        let taken = taken(&record(RECORD_SAMPLE, 1, &chain(1, 1, &words))).unwrap();
        assert_eq!(taken.samples[0].kernel, [1, 2]);
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let stream = stream();
        let whole = [0, 48, 72, 104, stream.len()];
        for length in 0..=stream.len() {
            assert_eq!(taken(&stream[..length]).is_ok(), whole.contains(&length), "{length} bytes");
        }
        assert!(taken(&record(RECORD_SAMPLE, 1, &chain(1, 1, &[])[..8])).is_err(), "without its count");
        let mut endless = chain(1, 1, &[5]);
        endless[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(taken(&record(RECORD_SAMPLE, 1, &endless)).is_err(), "more frames than bytes");
        assert!(taken(&[9, 0, 0, 0, 0, 0, 4, 0]).is_err(), "smaller than its header");
    }
}

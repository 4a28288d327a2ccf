//! What a run comes to when it has ended.

use std::time::Duration;

use super::Worker;
use crate::connection::{ConnectionState, OpenRequest};
use crate::exchange::{Exchange, ExchangeLog};
use crate::outcome::Reason;

impl Worker<'_> {
    /// Counts the requests still open, and those never sent, as missed.
    pub(super) fn account(&mut self, now_ns: u64) {
        let mut oldest_ns = None;
        for index in 0..self.client.connections.len() {
            let connection = &self.client.connections[index];
            let is_silent = connection.phase == ConnectionState::Up && connection.answers == 0;
            self.outcome.silent += u64::from(is_silent && !connection.open.is_empty());
            for place in 0..connection.open.len() {
                let open = self.client.connections[index].open[place];
                if open.sent_ns == OpenRequest::PROMISED {
                    oldest_ns = Some(oldest_ns.unwrap_or(u64::MAX).min(open.intended_ns));
                } else {
                    let is_stuck = now_ns.saturating_sub(open.sent_ns) > self.outcome.service.max();
                    self.outcome.missed.stuck += u64::from(is_stuck);
                }
                self.miss(index as u32, open, Reason::Unanswered, now_ns);
            }
        }
        self.note_backlog(now_ns, self.ordinal + 1);
        let mut unsent = 0;
        while !self.saturates
            && let Some(intended_ns) = self.due(now_ns)
        {
            oldest_ns = Some(oldest_ns.unwrap_or(u64::MAX).min(intended_ns));
            self.outcome.missed.add(Reason::Unsent, now_ns - intended_ns);
            self.note(Exchange::unsent(intended_ns));
            self.pace.advance();
            unsent += 1;
        }
        self.on_unsent(oldest_ns);
        self.outcome.intended = self.ordinal + unsent + self.quota.abandoned;
        self.outcome.started_ns = self.start_ns;
        self.outcome.ended_ns = now_ns;
        self.outcome.duration = Duration::from_nanos(self.end_ns - self.start_ns);
        if self.saturates {
            self.outcome.saturated();
        }
        // Answers to requests that are open together come in bunches, and the time between two says nothing. A run of a
        // number of requests takes as long as they do.
        if self.saturates && self.client.limit == 1 && !self.quota.is_some() {
            let connections = self.client.connections.iter();
            connections
                .for_each(|of| self.outcome.intervals.add(of.times.intervals(self.start_ns, self.end_ns)));
        }
        self.publish();
        self.outcome.unlogged = self.log.take().map_or(0, ExchangeLog::close);
        self.client.number += self.ordinal;
        self.client.mean_ns = self.mean_ns().or(self.client.mean_ns);
        self.client.close_leftovers();
    }
}

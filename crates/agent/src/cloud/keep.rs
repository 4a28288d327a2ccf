//! The task that keeps the cloud's tables as the leases say.
//!
//! The calls of all nodes of an account count together, and who makes too many is refused. So the tables are asked for once a
//! minute, more often only while something is missing in them, and after a failure later each time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::difference::{Found, Planned, Recorded, difference};
use super::record::RecordFile;
use super::take_back::take_back_all;
use super::{
    Call, CloudError, CloudSettings, Interface, Record, RouteTables, Table, View, Wanted, Wish, aws,
};
use crate::backoff::{Backoff, jittered};
use crate::run::send_if_new;

/// The waits after failures.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);
/// While a table lacks a route to another node, it is asked for so many times as often,
const HASTE: u32 = 4;
/// in so many looks: after that the other node has no agent, or it has one that is refused.
const HASTY_LOOKS: u32 = 8;

/// Keeps the cloud's tables as wished, until nobody wishes any more. Nothing is asked before the first wish.
pub(crate) fn start(
    settings: CloudSettings,
    network: String,
    wishes: watch::Receiver<Option<Wish>>,
) -> watch::Receiver<View> {
    let (seen, views) = watch::channel(View::default());
    tokio::spawn(async move {
        let cloud = aws::Ec2::new(settings.login.clone());
        let keeper = CloudKeeper { cloud, settings, network, view: View::default(), hasty_looks: 0 };
        keeper.run(wishes, &seen).await;
    });
    views
}

struct CloudKeeper<R> {
    cloud: R,
    settings: CloudSettings,
    network: String,
    view: View,
    /// The last looks, in a row, that found a way to be lacking.
    hasty_looks: u32,
}

/// What the cloud says of this node.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) interface: Interface,
    pub(super) tables: Vec<Table>,
    /// Tables in which something was made, and which are not to lead to this node any more.
    former: Vec<Table>,
}

impl Asked {
    pub(super) async fn ask(
        cloud: &mut impl RouteTables,
        wanted: &Wanted,
        record: &Record,
    ) -> Result<Asked, CloudError> {
        let interface = cloud.interface(&wanted.addresses).await?;
        let tables = cloud.tables(&wanted.tables, &interface).await?;
        let mut former: Vec<Table> = Vec::new();
        for made in &record.routes {
            if tables.iter().chain(&former).all(|table| table.id != made.table) {
                match cloud.tables(std::slice::from_ref(&made.table), &interface).await {
                    Err(error) if error.is("InvalidRouteTableID.NotFound") => {}
                    asked => former.extend(asked?),
                }
            }
        }
        Ok(Asked { interface, tables, former })
    }

    pub(super) fn found<'a>(&'a self, record: &'a Record) -> Found<'a> {
        let Asked { interface, tables, former } = self;
        Found { interface, tables, former, record }
    }
}

impl<R: RouteTables> CloudKeeper<R> {
    async fn run(mut self, mut wishes: watch::Receiver<Option<Wish>>, seen: &watch::Sender<View>) {
        let mut backoff = Backoff::between(WAIT_MIN, WAIT_MAX);
        loop {
            let wish = wishes.borrow_and_update().clone();
            let outcome = match &wish {
                None => Ok(()),
                Some(Wish::Nothing) => self.leave().await,
                Some(Wish::Routes(wanted)) => self.look(wanted).await,
            };
            self.view.unasked = outcome.as_ref().err().map(CloudError::in_words);
            send_if_new(seen, self.view.clone());
            let pause = match &outcome {
                Ok(()) if self.view.failed.is_empty() => {
                    backoff = Backoff::between(WAIT_MIN, WAIT_MAX);
                    self.pause(wish.as_ref())
                }
                Ok(()) | Err(_) => backoff.next(),
            };
            // Whoever is refused for too many calls does not make another one because the leases have changed.
            let is_throttled = outcome.is_err_and(|error| error.is_throttled());
            if !wait(&mut wishes, wish, pause, is_throttled).await {
                return;
            }
        }
    }

    /// How long nothing is asked if all goes well.
    fn pause(&mut self, wish: Option<&Wish>) -> Duration {
        let lacks_a_way = match wish {
            Some(Wish::Routes(wanted)) => {
                wanted.others.iter().any(|prefix| self.view.check_way(*prefix).is_err())
            }
            Some(Wish::Nothing) | None => false,
        };
        self.hasty_looks = if lacks_a_way { self.hasty_looks.saturating_add(1) } else { 0 };
        let is_hasty = (1..=HASTY_LOOKS).contains(&self.hasty_looks);
        jittered(if is_hasty { self.settings.period / HASTE } else { self.settings.period })
    }

    /// Takes back what was made for another backend than the network has now.
    async fn leave(&mut self) -> Result<(), CloudError> {
        self.view = View { repaired: std::mem::take(&mut self.view.repaired), ..View::default() };
        let mut file = RecordFile::open(&self.settings.record, &self.network)?;
        if file.record.is_empty() {
            return Ok(());
        }
        let taken = take_back_all(&mut self.cloud, &mut file).await;
        for call in taken.done {
            info!("taken back: {call}");
        }
        taken.failed.into_iter().next().map_or(Ok(()), Err)
    }

    /// Compares the tables with what is wanted, and makes them so.
    async fn look(&mut self, wanted: &Wanted) -> Result<(), CloudError> {
        let mut file = RecordFile::open(&self.settings.record, &self.network)?;
        let asked = Asked::ask(&mut self.cloud, wanted, &file.record).await?;
        file.at(&self.cloud.place().await?);
        let difference = difference(wanted, asked.found(&file.record));
        self.view.interface = Some(asked.interface);
        self.view.tables = asked.tables;
        self.view.failed = difference.refused;
        for planned in difference.calls {
            match self.act(&planned, &mut file).await {
                Err(error) if error.is_throttled() || matches!(error, CloudError::Unanswered { .. }) => {
                    return Err(error);
                }
                Err(error) => self.view.failed.push(error.in_words()),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Makes a call, recorded before it is made.
    async fn act(&mut self, planned: &Planned, file: &mut RecordFile) -> Result<(), CloudError> {
        let Planned { call, record } = planned;
        let was_made = match (call, record) {
            (Call::Create { table, prefix, .. } | Call::Replace { table, prefix, .. }, _) => {
                file.record.made(table, *prefix).is_some()
            }
            (Call::CheckSource { interface, .. }, _) => file.record.unchecked.contains(interface),
            (Call::Delete { .. }, _) => false,
        };
        match (record, call) {
            (Recorded::Made(made), _) => file.change(|record| record.add(made.clone()))?,
            (Recorded::Unchecked, Call::CheckSource { interface, .. }) if !was_made => {
                file.change(|record| record.unchecked.push(interface.clone()))?;
            }
            (Recorded::Unchecked | Recorded::Gone, _) => {}
        }
        match self.cloud.call(call).await {
            Err(error) if matches!(call, Call::Delete { .. }) && error.is("InvalidRoute.NotFound") => {}
            Err(error) => {
                if let (CloudError::Refused { .. }, false, Recorded::Made(made)) = (&error, was_made, record)
                {
                    file.change(|record| record.remove(&made.table, made.prefix))?;
                }
                return Err(self.explained(call, error));
            }
            Ok(()) => info!("done: {call}"),
        }
        if let (Recorded::Gone, Call::Delete { table, prefix }) = (record, call) {
            file.change(|record| record.remove(table, *prefix))?;
        }
        let instance = self.view.interface.as_ref().map(|interface| interface.instance.clone());
        if let (Call::CheckSource { on, .. }, Some(interface)) = (call, &mut self.view.interface) {
            interface.checks_source = *on;
        }
        for table in &mut self.view.tables {
            table.note(call, instance.as_deref().unwrap_or_default());
        }
        if was_made {
            warn!("repaired: {}", call.repaired());
            self.view.repaired.push(call.repaired());
        }
        Ok(())
    }

    /// A table that is full is named with how many routes it has.
    fn explained(&self, call: &Call, error: CloudError) -> CloudError {
        let Call::Create { table, prefix, .. } = call else { return error };
        if !error.is("RouteLimitExceeded") {
            return error;
        }
        let known = self.view.tables.iter().find(|known| known.id == *table);
        let routes = known.map_or(0, |known| known.counted[usize::from(prefix.addr().is_ipv6())]);
        CloudError::Full { table: table.clone(), prefix: prefix.to_string(), routes }
    }
}

/// Waits for the next look; false if there will be none. What concerns the node itself is looked at at once, and other nodes'
/// leases within the pause: their own agents make their routes.
async fn wait(
    wishes: &mut watch::Receiver<Option<Wish>>,
    wish: Option<Wish>,
    pause: Duration,
    is_throttled: bool,
) -> bool {
    let until = Instant::now() + pause;
    loop {
        tokio::select! {
            () = sleep_until(until) => return true,
            changed = wishes.changed() => if changed.is_err() { return false },
        }
        let is_urgent = match (&wish, &*wishes.borrow()) {
            (Some(Wish::Routes(before)), Some(Wish::Routes(now))) => {
                (&before.own, &before.tables, &before.addresses) != (&now.own, &now.tables, &now.addresses)
            }
            (before, now) => before != now,
        };
        if is_urgent && !is_throttled {
            return true;
        }
    }
}

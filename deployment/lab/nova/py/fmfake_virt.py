"""Nova's fake virt driver with knobs that a test sets in the server's own metadata (or through
the environment, as the default for all servers):

  fm:build_delay=SECONDS    spawn() takes that long (server stays BUILD / task_state spawning)
  fm:build_fail=TEXT        spawn() raises -> reschedule on other hosts, at last ERROR
  fm:build_abort=TEXT       spawn() raises BuildAbort -> ERROR at once, no reschedule
  fm:destroy_delay=SECONDS  destroy() takes that long (delete and rebuild)
  fm:destroy_fail=TEXT      destroy() raises (failed delete/rebuild -> ERROR)
  fm:rebuild_fail=TEXT      the spawn() of a rebuild raises
  fm:stuck_rebuild=1        see power_off()

Two things the stock driver has not:

* What happens to a machine is told as one JSON line each in $FM_FAKE_EVENTS (the management controller's view): spawn,
  destroy, power_on, power_off, reboot. The spawn line holds the user-data, which is secret: the file's mode is 600.
* The machines are written to the folder $FM_FAKE_MACHINES (one file each, mode 600) and read back when the compute
  service starts, so that servers can be rebuilt, stopped and deleted after a restart.
"""
import json
import os
import threading
import time
import uuid

from nova import exception
from nova.compute import task_states
from nova.virt import fake

_lock = threading.Lock()


def _num(v, default=0.0):
    try:
        return float(v)
    except (TypeError, ValueError):
        return default


def _node_uuid(nodename):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, 'fmfake-' + nodename))


def _private(path, flags):
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _tell(what, instance, **more):
    path = os.environ.get('FM_FAKE_EVENTS')
    if not path:
        return
    rec = {'t': time.time(), 'event': what, 'uuid': instance.uuid, 'name': instance.display_name,
           'host': instance.host, 'node': instance.node, 'task_state': instance.task_state, **more}
    line = json.dumps(rec) + '\n'
    with _lock, os.fdopen(_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 'w') as f:
        f.write(line)


class FMFakeDriver(fake.FakeDriver):
    vcpus = 1000
    memory_mb = 800000
    local_gb = 600000

    # ---- a compute service starts

    def init_host(self, host):
        super().init_host(host)
        for rec in self._kept():
            if rec['host'] == host:     # a new host must find none, or nova refuses to start
                self.instances[rec['uuid']] = fake.FakeInstance(rec['name'], rec['state'], rec['uuid'])
                self.resources.claim(**rec['claim'])

    def get_available_resource(self, nodename):
        res = super().get_available_resource(nodename)
        if res:     # a stable node uuid: the stock driver's is random for each process
            res['uuid'] = _node_uuid(nodename)
        return res

    def get_nodenames_by_uuid(self, refresh=False):
        return {_node_uuid(n): n for n in self.get_available_nodes()}

    # ---- the machines on disk

    @staticmethod
    def _kept():
        folder = os.environ.get('FM_FAKE_MACHINES')
        for name in sorted(os.listdir(folder)) if folder else ():
            if name.endswith('.json'):
                with open(os.path.join(folder, name)) as f:
                    yield json.load(f)

    def _keep(self, instance):
        """Write the machine as it is now, or forget it when it is no more. Atomic: a killed driver leaves no half file."""
        folder = os.environ.get('FM_FAKE_MACHINES')
        if not folder:
            return
        path = os.path.join(folder, f'{instance.uuid}@{self._host}.json')    # both hosts of a resize have it for a while
        now = self.instances.get(instance.uuid)
        if now is None:
            if os.path.exists(path):
                os.unlink(path)
            return
        flavor = instance.flavor
        rec = {'uuid': now.uuid, 'name': now.name, 'state': now.state, 'host': self._host,
               'claim': {'vcpus': flavor.vcpus, 'mem': flavor.memory_mb, 'disk': flavor.root_gb}}
        with os.fdopen(_private(path + '.new', os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 'w') as f:
            json.dump(rec, f)
        os.replace(path + '.new', path)

    # ---- what happens to a machine

    def spawn(self, context, instance, image_meta, injected_files, admin_password, allocations,
              network_info=None, block_device_info=None, power_on=True, accel_info=None):
        md = instance.metadata or {}
        rebuild = instance.task_state == task_states.REBUILD_SPAWNING
        delay = _num(md.get('fm:build_delay', os.environ.get('FM_FAKE_BUILD_DELAY')))
        if delay:
            time.sleep(delay)
        if 'fm:build_abort' in md and not rebuild:
            raise exception.BuildAbortException(instance_uuid=instance.uuid,
                                                reason=md['fm:build_abort'])
        if 'fm:build_fail' in md and not rebuild:
            raise exception.InstanceDeployFailure(reason=md['fm:build_fail'])
        if 'fm:rebuild_fail' in md and rebuild:
            raise exception.InstanceDeployFailure(reason=md['fm:rebuild_fail'])
        super().spawn(context, instance, image_meta, injected_files, admin_password, allocations,
                      network_info, block_device_info, power_on, accel_info)
        self._keep(instance)
        _tell('spawn', instance, rebuild=rebuild, image=instance.image_ref, flavor=instance.flavor.name,
              key_name=instance.key_name, config_drive=instance.config_drive, metadata=dict(md),
              user_data=instance.user_data)

    def destroy(self, context, instance, *args, **kwargs):
        md = instance.metadata or {}
        delay = _num(md.get('fm:destroy_delay'))
        if delay:
            time.sleep(delay)
        if 'fm:destroy_fail' in md:
            raise exception.InstanceTerminationFailure(reason=md['fm:destroy_fail'])
        super().destroy(context, instance, *args, **kwargs)
        self._keep(instance)
        _tell('destroy', instance)

    def power_off(self, instance, timeout=0, retry_interval=0):
        # The stock fake driver raises InstanceNotFound here after a failed rebuild; nova's rebuild_instance swallows
        # that and the server stays REBUILD / rebuilding for ever (no later rebuild possible). Say fm:stuck_rebuild
        # in the metadata to get that on purpose.
        if instance.uuid not in self.instances and 'fm:stuck_rebuild' not in (instance.metadata or {}):
            return
        super().power_off(instance, timeout, retry_interval)
        self._keep(instance)
        _tell('power_off', instance)

    def power_on(self, context, instance, *args, **kwargs):
        super().power_on(context, instance, *args, **kwargs)
        self._keep(instance)
        _tell('power_on', instance)

    def reboot(self, context, instance, *args, **kwargs):
        super().reboot(context, instance, *args, **kwargs)
        self._keep(instance)
        _tell('reboot', instance)

    def finish_revert_migration(self, context, instance, *args, **kwargs):
        super().finish_revert_migration(context, instance, *args, **kwargs)
        self._keep(instance)

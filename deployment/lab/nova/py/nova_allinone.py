"""Real nova-conductor + nova-scheduler + N x nova-compute (fake virt driver) + the real nova API,
all as threads of ONE process, over oslo.messaging's in-process fake:// transport: no RabbitMQ.

nova_allinone.py --config-file nova.conf ; env FM_NOVA_API_PORT, FM_NOVA_HOSTS=host1,host2 (may be empty),
FM_NOVA_NEEDS=http://...,http://... (what must answer before the computes start, so that all services may be started
at once and their slow imports overlap)
"""
from nova import monkey_patch
monkey_patch.patch(backend='threading')

import os
import sqlite_immediate  # noqa: F401
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

import os_vif
from oslo_log import log as logging
from oslo_service import _options as service_opts

import nova.conf
import nova.virt
from nova import config, context, objects, service, utils
from nova.compute import rpcapi as compute_rpcapi
from nova.conductor import rpcapi as conductor_rpcapi
from nova.objects import host_mapping
from nova.scheduler import rpcapi as scheduler_rpcapi
from nova.scheduler.client import report

CONF = nova.conf.CONF
LOG = logging.getLogger('nova.allinone')


# nova 34 reads every server's allocation from placement at each claim (only a virt driver that reshapes needs them;
# ours does not): with 100 servers on one fake host a build would take 100 more HTTP calls.
report.SchedulerReportClient.get_allocations_for_provider_tree = lambda self, context, nodename: {}
# nova loads compute_driver only from the package nova.virt: let it find ours there
nova.virt.__path__.append(os.path.dirname(os.path.abspath(__file__)))


def wait_for(url):
    """A compute that starts before keystone or placement answers logs an error and has no resources for a minute."""
    for _ in range(600):
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return                      # 300, 401: it is there
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f'{url} does not answer')


def main():
    t0 = time.time()
    # sqlite3 gives the GIL up at each row: with the default 5 ms a busy process of many threads crawls
    sys.setswitchinterval(0.0002)
    port = int(os.environ['FM_NOVA_API_PORT'])
    hosts = [h for h in os.environ.get('FM_NOVA_HOSTS', '').split(',') if h]
    threads = int(os.environ.get('FM_NOVA_API_THREADS', '32'))
    config.parse_args(sys.argv)
    logging.setup(CONF, 'nova')
    CONF.register_opts(service_opts.service_opts)
    objects.register_all()
    os_vif.initialize()
    objects.Service.enable_min_version_cache()
    for url in os.environ.get('FM_NOVA_NEEDS', '').split(','):
        if url:
            wait_for(url)
    services = []
    c = service.Service.create(binary='nova-conductor', topic=conductor_rpcapi.RPC_TOPIC)
    c.start(); services.append(c)
    for host in hosts:
        # CONF.host is process-wide; nova's functional tests set it likewise before each compute
        CONF.set_override('host', host)
        s = service.Service.create(host=host, binary='nova-compute', topic=compute_rpcapi.RPC_TOPIC,
                                   topic_alt=getattr(compute_rpcapi, 'RPC_TOPIC_ALT', None))
        s.start(); services.append(s)
    CONF.clear_override('host')
    host_mapping.discover_hosts(context.get_admin_context())
    s = service.Service.create(binary='nova-scheduler', topic=scheduler_rpcapi.RPC_TOPIC)
    s.start(); services.append(s)

    from nova.api.openstack import wsgi_app
    wsgi_app._setup_service(CONF.host, 'osapi_compute')
    from paste import deploy
    app = deploy.loadapp('config:' + os.environ['FM_NOVA_PASTE'], name='osapi_compute')
    from cheroot import wsgi
    srv = wsgi.Server(('127.0.0.1', port), app, numthreads=threads, max=threads,
                      request_queue_size=512, server_name='nova-allinone', shutdown_timeout=1)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *a: stop.set())
    signal.signal(signal.SIGINT, lambda *a: stop.set())
    th = threading.Thread(target=srv.start, daemon=True); th.start()
    print('nova all-in-one up in %.1fs, hosts %s, port %d' % (time.time() - t0, hosts, port), flush=True)
    stop.wait()
    srv.stop()
    os._exit(0)       # the fake services hold nothing worth a graceful stop


if __name__ == '__main__':
    try:
        main()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
